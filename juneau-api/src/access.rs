//! Who may enter a VPC, and who may call which Service ([`services`]).
//!
//! Namespaces are the tenants' border: `spec.allowedNamespaces` of a Vpc says by their labels whose Pods and Services
//! may name it. The admission webhook, the operator and every agent ask the same function.

pub mod services;

use crate::kinds::{Namespace, Vpc};
use crate::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use std::collections::BTreeMap;

/// The label that every Namespace has: its own name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Why a Namespace may not enter a Vpc.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Namespace/{namespace} may not enter Vpc/{vpc}: {why}; {}", .why.remedy())]
pub struct Refused {
    /// The Namespace.
    pub namespace: String,
    /// The Vpc.
    pub vpc: String,
    /// Why.
    pub why: Closed,
}

/// Why a Vpc is closed to a Namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// A binding is required, and the Vpc has none.
    #[error("the cluster requires spec.allowedNamespaces, and the Vpc has none")]
    NoBinding,
    /// The Namespace's labels do not fit.
    #[error("its labels do not match spec.allowedNamespaces")]
    NotSelected,
    /// The selector has an operator that is not known, or values that do not go with it; it selects nothing.
    #[error("spec.allowedNamespaces has an expression that is not valid: {key} {operator}")]
    InvalidSelector {
        /// The label that the expression is about.
        key: String,
        /// Its operator.
        operator: String,
    },
    /// It is not known which labels the Namespace has.
    #[error("the Namespace is not known")]
    UnknownNamespace,
}

impl Closed {
    /// What to do.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoBinding => "set spec.allowedNamespaces of the Vpc",
            Self::NotSelected => "label the Namespace so that it is selected, or name a Subnet of another Vpc",
            Self::InvalidSelector { .. } => "use In or NotIn with values, or Exists or DoesNotExist without",
            Self::UnknownNamespace => "create the Namespace",
        }
    }
}

/// Whether Pods and Services of a Namespace may enter a Vpc.
///
/// Without `spec.allowedNamespaces` a Vpc is open to all; with `require_binding` it is open to none then, except the
/// Vpc `default`, which every untouched Pod is in. An empty selector is open to all either way. The label
/// `kubernetes.io/metadata.name` is the Namespace's name whatever `labels` says.
///
/// # Errors
/// [`Refused`], which names both.
pub fn may_enter(
    vpc: &Vpc,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    require_binding: bool,
) -> Result<(), Refused> {
    let name = vpc.metadata.name.as_deref().unwrap_or_default();
    let refused = |why| Refused { namespace: namespace.to_owned(), vpc: name.to_owned(), why };
    match &vpc.spec.allowed_namespaces {
        None if require_binding && name != names::DEFAULT => Err(refused(Closed::NoBinding)),
        None => Ok(()),
        Some(selector) => {
            let label = |key: &str| match key {
                NAME_LABEL => Some(namespace),
                _ => labels.get(key).map(String::as_str),
            };
            match selects(selector, label) {
                Ok(true) => Ok(()),
                Ok(false) => Err(refused(Closed::NotSelected)),
                Err(requirement) => Err(refused(Closed::InvalidSelector {
                    key: requirement.key.clone(),
                    operator: requirement.operator.clone(),
                })),
            }
        }
    }
}

/// [`may_enter`] for a Namespace that may not be known; such a one may enter what is open to all.
///
/// # Errors
/// [`Refused`], which names both.
pub fn namespace_may_enter(
    vpc: &Vpc,
    namespace: &str,
    object: Option<&Namespace>,
    require_binding: bool,
) -> Result<(), Refused> {
    if object.is_none() && vpc.spec.allowed_namespaces.is_some() {
        let vpc = vpc.metadata.name.clone().unwrap_or_default();
        return Err(Refused { namespace: namespace.to_owned(), vpc, why: Closed::UnknownNamespace });
    }
    may_enter(vpc, namespace, object.map_or(&NO_LABELS, labels_of), require_binding)
}

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// The labels of a Namespace.
#[must_use]
pub fn labels_of(namespace: &Namespace) -> &BTreeMap<String, String> {
    namespace.metadata.labels.as_ref().unwrap_or(&NO_LABELS)
}

/// Whether labels fit a selector, as Kubernetes has it: all of `matchLabels` and `matchExpressions` hold; none of them
/// at all selects everything. `NotIn` holds also without the label.
///
/// # Errors
/// The expression that is not valid.
fn selects<'l>(
    selector: &LabelSelector,
    label: impl Fn(&str) -> Option<&'l str>,
) -> Result<bool, &LabelSelectorRequirement> {
    let expressions = selector.match_expressions.as_deref().unwrap_or_default();
    // An expression that is not valid closes, whatever the others say.
    let mut all = true;
    for requirement in expressions {
        let values = requirement.values.as_deref().unwrap_or_default();
        let value = label(&requirement.key);
        let is_in = value.is_some_and(|value| values.iter().any(|one| one == value));
        all &= match (requirement.operator.as_str(), values.is_empty()) {
            ("In", false) => is_in,
            ("NotIn", false) => !is_in,
            ("Exists", true) => value.is_some(),
            ("DoesNotExist", true) => value.is_none(),
            _ => return Err(requirement),
        };
    }
    let mut wanted = selector.match_labels.iter().flatten();
    Ok(all && wanted.all(|(key, value)| label(key) == Some(value.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn vpc(name: &str, selector: Option<Value>) -> Vpc {
        let mut vpc =
            json!({"apiVersion": crate::kinds::API_VERSION, "kind": "Vpc", "metadata": {"name": name}, "spec": {}});
        if let Some(selector) = selector {
            vpc["spec"]["allowedNamespaces"] = selector;
        }
        serde_json::from_value(vpc).unwrap()
    }

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn without_a_binding_a_vpc_is_open_unless_one_is_required() {
        let none = labels(&[]);
        assert_eq!(may_enter(&vpc("red", None), "n", &none, false), Ok(()));
        let refused = may_enter(&vpc("red", None), "n", &none, true).unwrap_err();
        assert_eq!(refused.why, Closed::NoBinding);
        assert_eq!(may_enter(&vpc("default", None), "n", &none, true), Ok(()));
        let closed = vpc("default", Some(json!({"matchLabels": {"a": "b"}})));
        assert!(may_enter(&closed, "n", &none, false).is_err());
        for require in [false, true] {
            assert_eq!(may_enter(&vpc("red", Some(json!({}))), "n", &none, require), Ok(()));
        }
    }

    #[test]
    fn selectors_are_those_of_kubernetes() {
        let tenant = labels(&[("tenant", "red"), ("stage", "")]);
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, enters) in [
            (json!({"matchLabels": {"tenant": "red"}}), true),
            (json!({"matchLabels": {"tenant": "blue"}}), false),
            (json!({"matchLabels": {"tenant": "red", "other": "x"}}), false),
            (json!({"matchLabels": {"stage": ""}}), true),
            (json!({"matchLabels": {"absent": ""}}), false),
            (json!({"matchLabels": {}, "matchExpressions": []}), true),
            (expression("tenant", "In", &["blue", "red"]), true),
            (expression("tenant", "In", &["blue"]), false),
            (expression("absent", "In", &["blue"]), false),
            (expression("tenant", "NotIn", &["blue"]), true),
            (expression("tenant", "NotIn", &["red"]), false),
            (expression("absent", "NotIn", &["red"]), true),
            (expression("stage", "Exists", &[]), true),
            (expression("absent", "Exists", &[]), false),
            (expression("absent", "DoesNotExist", &[]), true),
            (expression("stage", "DoesNotExist", &[]), false),
            (json!({"matchExpressions": [{"key": "stage", "operator": "Exists"}]}), true),
            (
                json!({"matchLabels": {"tenant": "red"}, "matchExpressions": [{"key": "stage", "operator": "DoesNotExist"}]}),
                false,
            ),
            (json!({"matchLabels": {"kubernetes.io/metadata.name": "red"}}), true),
            (json!({"matchLabels": {"kubernetes.io/metadata.name": "blue"}}), false),
        ] {
            let vpc = vpc("red", Some(selector.clone()));
            assert_eq!(may_enter(&vpc, "red", &tenant, true).is_ok(), enters, "{selector}");
        }
    }

    #[test]
    fn expressions_that_are_not_valid_close() {
        let tenant = labels(&[("tenant", "red")]);
        for (operator, values) in [
            ("in", vec!["red"]),
            ("Gt", vec!["1"]),
            ("", vec![]),
            ("In", vec![]),
            ("NotIn", vec![]),
            ("Exists", vec!["red"]),
            ("DoesNotExist", vec!["red"]),
        ] {
            let selector = json!({"matchExpressions": [{"key": "tenant", "operator": operator, "values": values}]});
            let refused = may_enter(&vpc("red", Some(selector)), "red", &tenant, false).unwrap_err();
            assert!(matches!(refused.why, Closed::InvalidSelector { .. }), "{operator} {values:?}");
        }
    }

    #[test]
    fn the_name_of_a_namespace_cannot_be_borrowed() {
        let borrowed = labels(&[(NAME_LABEL, "red")]);
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "red"}});
        assert!(may_enter(&vpc("red", Some(selector)), "blue", &borrowed, false).is_err());
    }

    #[test]
    fn a_namespace_that_is_not_known_enters_only_what_is_open() {
        assert_eq!(namespace_may_enter(&vpc("red", None), "n", None, false), Ok(()));
        for selector in [json!({}), json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]})] {
            let refused = namespace_may_enter(&vpc("red", Some(selector.clone())), "n", None, false).unwrap_err();
            assert_eq!(refused.why, Closed::UnknownNamespace);
            let known = Namespace::default();
            assert_eq!(namespace_may_enter(&vpc("red", Some(selector)), "n", Some(&known), false), Ok(()));
        }
    }

    #[test]
    fn a_refusal_names_both_and_says_what_to_do() {
        let refused =
            may_enter(&vpc("red", Some(json!({"matchLabels": {"a": "b"}}))), "blue", &labels(&[]), false).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "Namespace/blue may not enter Vpc/red: its labels do not match spec.allowedNamespaces; \
             label the Namespace so that it is selected, or name a Subnet of another Vpc"
        );
    }
}
