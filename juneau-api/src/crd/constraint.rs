//! One field's limits and rules, and how they get into a schema.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};

/// A rule is about a field that its kind does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a rule is about {path}, which the kind does not have")]
pub struct UnknownPath {
    /// The field, from the object's root on.
    pub path: String,
}

/// Limits and rules of one field. A path is written with dots; `[]` are the elements of a list, `{}` the values of a
/// map; the empty path is the object itself.
#[derive(Debug, Default)]
pub(super) struct Constraint {
    path: String,
    min_length: Option<i64>,
    max_length: Option<i64>,
    pattern: Option<&'static str>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    min_items: Option<i64>,
    max_items: Option<i64>,
    max_properties: Option<i64>,
    one_of: Vec<&'static str>,
    list_type: Option<&'static str>,
    list_keys: Vec<&'static str>,
    atomic: bool,
    rules: Vec<(String, String)>,
}

/// Constrains a field.
pub(super) fn at(path: &str) -> Constraint {
    Constraint { path: path.to_owned(), ..Constraint::default() }
}

impl Constraint {
    /// Length of a text, in characters.
    pub(super) const fn length(mut self, min: i64, max: i64) -> Self {
        if min > 0 {
            self.min_length = Some(min);
        }
        self.max_length = Some(max);
        self
    }

    /// A regular expression.
    pub(super) const fn pattern(mut self, pattern: &'static str) -> Self {
        self.pattern = Some(pattern);
        self
    }

    /// Bounds of a number.
    pub(super) const fn range(mut self, min: u32, max: u32) -> Self {
        self.minimum = Some(min as f64);
        self.maximum = Some(max as f64);
        self
    }

    /// A number's lower bound.
    pub(super) const fn at_least(mut self, min: u32) -> Self {
        self.minimum = Some(min as f64);
        self
    }

    /// Number of a list's elements.
    pub(super) const fn items(mut self, min: i64, max: i64) -> Self {
        if min > 0 {
            self.min_items = Some(min);
        }
        self.max_items = Some(max);
        self
    }

    /// Number of a map's entries.
    pub(super) const fn entries(mut self, max: i64) -> Self {
        self.max_properties = Some(max);
        self
    }

    /// The only values.
    pub(super) fn one_of(mut self, values: &[&'static str]) -> Self {
        self.one_of = values.to_vec();
        self
    }

    /// A list of different elements.
    pub(super) const fn set(mut self) -> Self {
        self.list_type = Some("set");
        self
    }

    /// A list whose elements differ in one field, by which they are merged.
    pub(super) fn map(mut self, key: &'static str) -> Self {
        self.list_type = Some("map");
        self.list_keys = vec![key];
        self
    }

    /// An object that one writer has as a whole.
    pub(super) const fn atomic(mut self) -> Self {
        self.atomic = true;
        self
    }

    /// A CEL rule and what is said when it does not hold.
    pub(super) fn rule(mut self, rule: impl Into<String>, message: impl Into<String>) -> Self {
        self.rules.push((rule.into(), message.into()));
        self
    }

    /// Puts all of it into a schema.
    pub(super) fn apply(&self, root: &mut JSONSchemaProps) -> Result<(), UnknownPath> {
        let schema = find(root, &self.path).ok_or_else(|| UnknownPath { path: self.path.clone() })?;
        schema.min_length = self.min_length.or(schema.min_length);
        schema.max_length = self.max_length.or(schema.max_length);
        schema.minimum = self.minimum.or(schema.minimum);
        schema.maximum = self.maximum.or(schema.maximum);
        schema.min_items = self.min_items.or(schema.min_items);
        schema.max_items = self.max_items.or(schema.max_items);
        schema.max_properties = self.max_properties.or(schema.max_properties);
        if let Some(pattern) = self.pattern {
            schema.pattern = Some(pattern.to_owned());
        }
        if !self.one_of.is_empty() {
            let values = self.one_of.iter().map(|value| serde_json::Value::from(*value));
            schema.enum_ =
                Some(values.map(k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON).collect());
        }
        if let Some(list_type) = self.list_type {
            schema.x_kubernetes_list_type = Some(list_type.to_owned());
        }
        if !self.list_keys.is_empty() {
            schema.x_kubernetes_list_map_keys = Some(self.list_keys.iter().map(|key| (*key).to_owned()).collect());
        }
        if self.atomic {
            schema.x_kubernetes_map_type = Some("atomic".to_owned());
        }
        for (rule, message) in &self.rules {
            schema.x_kubernetes_validations.get_or_insert_default().push(ValidationRule {
                rule: rule.clone(),
                message: Some(message.clone()),
                ..ValidationRule::default()
            });
        }
        Ok(())
    }
}

fn find<'s>(root: &'s mut JSONSchemaProps, path: &str) -> Option<&'s mut JSONSchemaProps> {
    let mut schema = root;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let name = part.trim_end_matches(['[', ']', '{', '}']);
        schema = schema.properties.as_mut()?.get_mut(name)?;
        match &part[name.len()..] {
            "" => {}
            "[]" => match schema.items.as_mut()? {
                JSONSchemaPropsOrArray::Schema(items) => schema = items,
                JSONSchemaPropsOrArray::Schemas(_) => return None,
            },
            "{}" => match schema.additional_properties.as_mut()? {
                JSONSchemaPropsOrBool::Schema(values) => schema = values,
                JSONSchemaPropsOrBool::Bool(_) => return None,
            },
            _ => return None,
        }
    }
    Some(schema)
}
