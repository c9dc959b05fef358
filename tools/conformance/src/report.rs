//! What ginkgo says of a run: its report in JSON.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It passed, after this time.
    Passed(Duration),
    /// It failed: with the first line of what it said.
    Failed(String),
    /// It said itself that it does not apply here, and why.
    Skipped(String),
}

/// A run's outcome.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Tests that ran, by name.
    pub tests: BTreeMap<String, Ended>,
    /// What failed around them: setting up and ending the suite.
    pub around: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    // Null when there is none.
    spec_reports: Option<Vec<Spec>>,
    #[serde(default)]
    special_suite_failure_reasons: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    #[serde(default)]
    leaf_node_text: String,
    state: String,
    /// In nanoseconds.
    #[serde(default)]
    run_time: u64,
    #[serde(default)]
    failure: Failure,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failure {
    message: String,
}

impl Outcome {
    /// Reads a report. Tests that were not chosen are in it as skipped without a reason, and left out here.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let suites: Vec<Suite> = serde_json::from_slice(json)?;
        let mut outcome = Self::default();
        for suite in suites {
            outcome.around.extend(suite.special_suite_failure_reasons.unwrap_or_default());
            for spec in suite.spec_reports.unwrap_or_default() {
                outcome.add(spec);
            }
        }
        Ok(outcome)
    }

    fn add(&mut self, spec: Spec) {
        let message = spec.failure.message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
        let mut words = spec.container_hierarchy_texts.unwrap_or_default();
        words.push(spec.leaf_node_text);
        words.retain(|word| !word.is_empty());
        let name = words.join(" ");
        let ended = match spec.state.as_str() {
            "passed" => Ended::Passed(Duration::from_nanos(spec.run_time)),
            "skipped" if message.is_empty() => return,
            "skipped" => Ended::Skipped(message.to_owned()),
            "pending" => return,
            state => Ended::Failed(format!("{state}: {message}")),
        };
        if spec.leaf_node_type == "It" {
            self.tests.insert(name, ended);
        } else if let Ended::Failed(why) = ended {
            self.around.push(format!("{} {why}", spec.leaf_node_type));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_is_told_by_name() {
        let report =
            br#"[{ "SuiteDescription": "Kubernetes e2e suite", "SpecialSuiteFailureReasons": null, "SpecReports": [
            { "ContainerHierarchyTexts": null, "LeafNodeType": "SynchronizedBeforeSuite", "LeafNodeText": "",
              "State": "passed", "RunTime": 5 },
            { "ContainerHierarchyTexts": ["[sig-network] DNS", "inner"], "LeafNodeType": "It", "LeafNodeText": "works",
              "State": "passed", "RunTime": 1500000000 },
            { "ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "not chosen",
              "State": "skipped", "RunTime": 0 },
            { "ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "needs a cloud",
              "State": "skipped", "Failure": { "Message": "Only for clouds" } },
            { "ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "hangs",
              "State": "timedout", "Failure": { "Message": "\nA suite timeout\nmore" } },
            { "ContainerHierarchyTexts": null, "LeafNodeType": "ReportAfterSuite", "LeafNodeText": "JUnit",
              "State": "failed", "Failure": { "Message": "no space" } }
        ] }]"#;
        let outcome = Outcome::parse(report).unwrap();
        let expected = [
            ("[sig-network] DNS hangs", Ended::Failed("timedout: A suite timeout".to_owned())),
            ("[sig-network] DNS inner works", Ended::Passed(Duration::from_millis(1500))),
            ("[sig-network] DNS needs a cloud", Ended::Skipped("Only for clouds".to_owned())),
        ];
        assert_eq!(outcome.tests, expected.map(|(name, ended)| (name.to_owned(), ended)).into());
        assert_eq!(outcome.around, ["ReportAfterSuite failed: no space"]);
        assert!(Outcome::parse(b"{}").is_err());
    }
}
