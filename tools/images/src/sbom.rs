//! What is in an image, as a CycloneDX document (1.5, JSON; ECMA-424 is its successor).

use crate::dependencies::{Graph, Id};
use serde::Serialize;
use std::collections::BTreeSet;

/// A library that is linked in and that cargo does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// Its version, if the machine can tell.
    pub version: Option<String>,
    /// Its package URL.
    pub purl: String,
    /// SPDX expression.
    pub licence: String,
    /// Licences and notices that come with it, by name.
    pub notices: Vec<(String, String)>,
}

/// What the document is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The image's name without its tag.
    pub name: &'a str,
    /// Its tag.
    pub tag: &'a str,
    /// When it was made, as RFC 3339 has it.
    pub created: &'a str,
    /// What its programs were compiled for.
    pub target: &'a str,
    /// Its programs, each with the libraries that it needs.
    pub programs: &'a [(Id, &'a [Library])],
    /// What the programs are made of.
    pub graph: &'a Graph,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bom<'a> {
    #[serde(rename = "$schema")]
    schema: &'a str,
    bom_format: &'a str,
    spec_version: &'a str,
    version: u32,
    metadata: Metadata<'a>,
    components: Vec<Component<'a>>,
    dependencies: Vec<Dependency>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    timestamp: &'a str,
    component: Component<'a>,
    properties: [Property<'a>; 1],
}

#[derive(Serialize)]
struct Property<'a> {
    name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Component<'a> {
    r#type: &'a str,
    #[serde(rename = "bom-ref")]
    bom_ref: String,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    licenses: Vec<Licence<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    external_references: Vec<Reference<'a>>,
}

#[derive(Serialize)]
struct Licence<'a> {
    expression: &'a str,
}

#[derive(Serialize)]
struct Reference<'a> {
    r#type: &'a str,
    url: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dependency {
    r#ref: String,
    depends_on: BTreeSet<String>,
}

/// Package URL of a crate. Of a version only `+` needs to be escaped.
fn purl((name, version): &Id) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// The document.
///
/// # Errors
/// What the JSON writer says.
pub fn document(subject: &Subject<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let image = format!("{}:{}", subject.name, subject.tag);
    let programs: BTreeSet<&Id> = subject.programs.iter().map(|(id, _)| id).collect();
    let mut components = Vec::new();
    let mut dependencies =
        vec![Dependency { r#ref: image.clone(), depends_on: programs.iter().map(|id| purl(id)).collect() }];
    for (id, package) in &subject.graph.packages {
        let mut depends_on: BTreeSet<_> = subject.graph.edges.get(id).into_iter().flatten().map(purl).collect();
        for (_, libraries) in subject.programs.iter().filter(|(program, _)| program == id) {
            depends_on.extend(libraries.iter().map(|library| library.purl.clone()));
        }
        components.push(Component {
            r#type: if programs.contains(id) { "application" } else { "library" },
            bom_ref: purl(id),
            name: &id.0,
            version: Some(&id.1),
            licenses: package.licence.iter().map(|expression| Licence { expression }).collect(),
            purl: Some(purl(id)),
            external_references: package.repository.iter().map(|url| Reference { r#type: "vcs", url }).collect(),
        });
        dependencies.push(Dependency { r#ref: purl(id), depends_on });
    }
    let mut seen = BTreeSet::new();
    for library in subject.programs.iter().flat_map(|(_, libraries)| *libraries) {
        if !seen.insert(&library.purl) {
            continue;
        }
        components.push(Component {
            r#type: "library",
            bom_ref: library.purl.clone(),
            name: &library.name,
            version: library.version.as_deref(),
            licenses: vec![Licence { expression: &library.licence }],
            purl: Some(library.purl.clone()),
            external_references: Vec::new(),
        });
        dependencies.push(Dependency { r#ref: library.purl.clone(), depends_on: BTreeSet::new() });
    }
    let container = Component {
        r#type: "container",
        bom_ref: image,
        name: subject.name,
        version: Some(subject.tag),
        licenses: Vec::new(),
        purl: None,
        external_references: Vec::new(),
    };
    let mut text = serde_json::to_vec_pretty(&Bom {
        schema: "http://cyclonedx.org/schema/bom-1.5.schema.json",
        bom_format: "CycloneDX",
        spec_version: "1.5",
        version: 1,
        metadata: Metadata {
            timestamp: subject.created,
            component: container,
            properties: [Property { name: "juneau:target", value: subject.target }],
        },
        components,
        dependencies,
    })?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependencies::Package;
    use serde_json::{Value, json};

    #[test]
    fn every_reference_leads_somewhere() {
        let id = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let (program, part) = (id("program", "0.1.0"), id("part", "1.0.0+2"));
        let package = |licence: &str, repository: &str| Package {
            licence: Some(licence.to_owned()).filter(|text| !text.is_empty()),
            repository: Some(repository.to_owned()).filter(|text| !text.is_empty()),
            directory: "/nowhere".into(),
        };
        let packages = [
            (program.clone(), package("Apache-2.0 OR MIT", "https://example.org/program")),
            (part.clone(), package("", "")),
        ];
        let edges = [(program.clone(), [part.clone()].into()), (part, BTreeSet::new())];
        let graph = Graph { packages: packages.into(), edges: edges.into() };
        let library = Library {
            name: "libc6-dev".to_owned(),
            version: Some("2.36".to_owned()),
            purl: "pkg:deb/debian/libc6-dev@2.36".to_owned(),
            licence: "LGPL-2.1-or-later".to_owned(),
            notices: Vec::new(),
        };
        // The same library twice is one component.
        let libraries = [library.clone(), library];
        let subject = Subject {
            name: "example.org/image",
            tag: "v1",
            created: "2023-11-14T22:13:20Z",
            target: "x86_64-unknown-linux-gnu",
            programs: &[(program, &libraries)],
            graph: &graph,
        };
        let bytes = document(&subject).unwrap();
        assert_eq!(bytes, document(&subject).unwrap());
        let bom: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((&bom["bomFormat"], &bom["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
        let components = bom["components"].as_array().unwrap();
        assert_eq!(components.len(), 3);
        assert_eq!(components[0]["purl"], "pkg:cargo/part@1.0.0%2B2");
        assert!(components[0].get("licenses").is_none() && components[0].get("externalReferences").is_none());
        assert_eq!(components[1]["type"], "application");
        assert_eq!(components[1]["licenses"], json!([{"expression": "Apache-2.0 OR MIT"}]));
        assert_eq!(components[1]["externalReferences"], json!([{"type": "vcs", "url": "https://example.org/program"}]));

        let mut known: BTreeSet<_> = components.iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
        assert!(known.insert(bom["metadata"]["component"]["bom-ref"].as_str().unwrap()));
        let dependencies = bom["dependencies"].as_array().unwrap();
        let said: BTreeSet<_> = dependencies.iter().map(|one| one["ref"].as_str().unwrap()).collect();
        assert_eq!(said, known);
        for one in dependencies {
            for on in one["dependsOn"].as_array().unwrap() {
                assert!(known.contains(on.as_str().unwrap()), "{on}");
            }
        }
        let of = |name: &str| dependencies.iter().find(|one| one["ref"] == name).unwrap()["dependsOn"].clone();
        assert_eq!(of("example.org/image:v1"), json!(["pkg:cargo/program@0.1.0"]));
        assert_eq!(of("pkg:cargo/program@0.1.0"), json!(["pkg:cargo/part@1.0.0%2B2", "pkg:deb/debian/libc6-dev@2.36"]));
    }
}
