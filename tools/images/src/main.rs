//! `juneau-images`: builds the programs and writes their images.

use clap::Parser;
use juneau_images::notices::{self, NoticeError, Part};
use juneau_images::ours::{Content, KINDS, Kind};
use juneau_images::programs::{BuildError, Workspace};
use juneau_images::sbom::{self, Library, Subject};
use juneau_images::source::{Source, SourceError};
use juneau_images::{Architecture, ImageError, TreeError, archive};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes an OCI archive of each image, and its list of contents beside it. The same sources give the same bytes.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Directory for the archives. Without it: `images` in cargo's target directory.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// What stands before the images' names.
    #[arg(long, value_name = "PREFIX", default_value = "ghcr.io/juneau-net")]
    repository: String,
    /// The images' tag. Without it: v and the version.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Notice(#[from] NoticeError),
    #[error("no images are made for {target}")]
    Target { target: String },
    #[error("{program} is no package that cargo knows")]
    Program { program: &'static str },
    #[error("the list of contents: {0}")]
    Sbom(#[from] serde_json::Error),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("standard output: {0}")]
    Output(io::Error),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if this cannot be written, either.
            let _ = writeln!(io::stderr(), "juneau-images: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Error> {
    let workspace = Workspace::find()?;
    let source = Source::find(&workspace.repository)?;
    let target = workspace.target.clone();
    let architecture = Architecture::of(&target).ok_or(Error::Target { target })?;
    let tag = cli.tag.clone().unwrap_or_else(|| format!("v{}", source.version));
    let directory = cli.output.clone().unwrap_or_else(|| workspace.target_dir.join("images"));
    fs::create_dir_all(&directory).map_err(|source| Error::File { path: directory.clone(), source })?;
    let mut out = io::stdout().lock();
    for kind in KINDS {
        let name = format!("{}/{}", cli.repository, kind.name);
        let content = content(&workspace, &source, kind, &name, &tag)?;
        let sbom = content.sbom.clone();
        let image = kind.image(format!("{name}:{tag}"), architecture, &source, content)?;
        let archive = image.archive()?;
        let path = directory.join(format!("{}.oci.tar", kind.name));
        write(&path, &archive.bytes)?;
        write(&directory.join(format!("{}.cdx.json", kind.name)), &sbom)?;
        let files = image.tree.size();
        let verdict = if files.max(archive.bytes.len()) <= kind.goal { "PASS" } else { "MISS" };
        let megabytes = |bytes: usize| format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10);
        let (shown, of, goal) = (megabytes(archive.bytes.len()), megabytes(files), megabytes(kind.goal));
        let said = writeln!(
            out,
            "{}\n  {name}:{tag}\n  {}\n  archive {shown}, files {of}, goal {goal}: {verdict}",
            path.display(),
            archive.digest,
        );
        said.map_err(Error::Output)?;
    }
    Ok(())
}

/// Builds an image's programs and collects what goes with them.
fn content(workspace: &Workspace, source: &Source, kind: Kind, name: &str, tag: &str) -> Result<Content, Error> {
    let mut programs = BTreeMap::new();
    for program in kind.programs {
        programs.insert(*program, workspace.program(program)?);
    }
    let whole = workspace.graph()?;
    let mut graph = juneau_images::dependencies::Graph::default();
    let mut made_of: Vec<(_, Vec<Library>)> = Vec::new();
    for program in kind.programs {
        let id = whole.find(program).ok_or(Error::Program { program })?;
        graph = graph.and(whole.below(&id));
        made_of.push((id, workspace.libraries(program, &whole)?));
    }
    let programs_of: Vec<_> = made_of.iter().map(|(id, libraries)| (id.clone(), libraries.as_slice())).collect();
    let sbom = sbom::document(&Subject {
        name,
        tag,
        created: &archive::date(source.created)?,
        target: &workspace.target,
        programs: &programs_of,
        graph: &graph,
    })?;

    let mut parts = Vec::new();
    for ((name, version), package) in &graph.packages {
        // Ours have theirs beside this text.
        if !package.directory.starts_with(&workspace.repository) {
            let (name, licence) = (format!("{name} {version}"), package.licence.clone());
            parts.push(Part { name, licence, files: notices::find(&package.directory)? });
        }
    }
    let mut seen = BTreeSet::new();
    for library in made_of.iter().flat_map(|(_, libraries)| libraries) {
        if seen.insert(&library.purl) {
            let name = format!("{} {}", library.name, library.version.as_deref().unwrap_or("(version unknown)"));
            parts.push(Part { name, licence: Some(library.licence.clone()), files: library.notices.clone() });
        }
    }
    let mut licences = vec![("THIRD-PARTY.txt".to_owned(), notices::text(&parts).into_bytes())];
    // The BPF programs have licences of their own.
    let ours = [("", true), ("bpf-src", graph.find("juneau-bpf").is_some())];
    for (directory, _) in ours.into_iter().filter(|(_, is_in_it)| *is_in_it) {
        let found = notices::find(&workspace.repository.join(directory))?;
        licences.extend(found.into_iter().map(|(name, text)| (name, text.into_bytes())));
    }
    Ok(Content { programs, licences, sbom })
}

/// Writes a file under another name and renames it, so that no half archive is ever taken for one.
fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    let unfinished = path.with_extension("unfinished");
    let written = fs::write(&unfinished, content).and_then(|()| fs::rename(&unfinished, path));
    written.map_err(|source| Error::File { path: path.to_owned(), source })
}
