//! What can go wrong on the way, each with what helps.

/// Why a command could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// No way to an API server is known.
    #[error(
        "no API server is known: {why}; name a file with --kubeconfig or $KUBECONFIG, and a context with --context"
    )]
    Config {
        /// What is wrong with the configuration.
        why: String,
    },
    /// The API server does not answer.
    #[error(
        "the API server at {server} cannot be reached: {why}; see that it runs and that --kubeconfig and --context name the cluster that is meant"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// The last cause.
        why: String,
    },
    /// The API server did not answer in time.
    #[error(
        "the API server at {server} did not answer within {seconds} s; try again, or wait longer with --request-timeout"
    )]
    Timeout {
        /// Its address.
        server: String,
        /// How long it had.
        seconds: u64,
    },
    /// Who asks is not known there.
    #[error(
        "the API server at {server} does not accept these credentials: {why}; they may have expired: log in again, or name another user with --kubeconfig or --context"
    )]
    Credentials {
        /// Its address.
        server: String,
        /// What it says.
        why: String,
    },
    /// The server is not trusted.
    #[error(
        "the certificate of the API server at {server} is not trusted: {why}; get a current kubeconfig of this cluster"
    )]
    Certificate {
        /// Its address.
        server: String,
        /// What is wrong.
        why: String,
    },
    /// Juneau's kinds are not there.
    #[error(
        "the API server at {server} has no definitions of juneau.loutres.me/v1alpha1: is Juneau installed? Apply them: juneau-operator crds | kubectl apply --server-side -f -"
    )]
    NoDefinitions {
        /// Its address.
        server: String,
    },
    /// It may not be read.
    #[error(
        "you may not list {plural}{place}; ask for the ClusterRole view: kubectl create clusterrolebinding NAME --clusterrole=view --user=YOU"
    )]
    Forbidden {
        /// Of what.
        plural: &'static str,
        /// Where, with a space before it; empty: in the whole cluster.
        place: String,
    },
    /// There is no such object.
    #[error("{object} does not exist{}", near_text(.near))]
    NotFound {
        /// Which.
        object: String,
        /// Names that are meant, perhaps.
        near: Vec<String>,
    },
    /// What was asked for could not be read.
    #[error("{why}")]
    Failed {
        /// Why.
        why: String,
    },
    /// There is no `kubectl`, by which agents are asked.
    #[error("there is no kubectl in the path, by which agents are asked: install it, or put it there")]
    NoKubectl,
    /// A node has no agent.
    #[error(
        "Node {node} has no agent's Pod in Namespace {namespace}: see kubectl juneau status, or name another --system-namespace"
    )]
    NoAgent {
        /// The node.
        node: String,
        /// Where agents are looked for.
        namespace: String,
    },
    /// The agents may not be asked.
    #[error(
        "you may not ask the agents ({why}); ask for the ClusterRole juneau-support-role: kubectl -n {namespace} create rolebinding NAME --clusterrole=juneau-support-role --user=YOU"
    )]
    MayNotExec {
        /// Namespace of the agents.
        namespace: String,
        /// What the API server says.
        why: String,
    },
    /// An agent does not answer as it should.
    #[error("the agent of {node}: {why}")]
    Agent {
        /// Its node.
        node: String,
        /// What it says.
        why: String,
    },
    /// Any other refusal.
    #[error("the API server at {server}: {why}")]
    Api {
        /// Its address.
        server: String,
        /// What it says.
        why: String,
    },
    /// It cannot be printed.
    #[error("the report cannot be written: {why}")]
    Output {
        /// Why.
        why: String,
    },
}

fn near_text(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        several => format!("; did you mean one of {}?", several.join(", ")),
    }
}

/// Names that are close to one that does not exist, the closest first.
#[must_use]
pub fn near<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    const SHOWN: usize = 3;
    let lower = wanted.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(1);
    let distance = |name: &str| {
        let name = name.to_lowercase();
        let is_part = lower.len() > 1 && (name.contains(&lower) || lower.contains(&name));
        let edits = strsim::damerau_levenshtein(&lower, &name);
        (is_part || edits <= limit).then_some(edits)
    };
    let mut found: Vec<(usize, &str)> =
        names.into_iter().filter_map(|name| distance(name).map(|edits| (edits, name))).collect();
    found.sort_unstable();
    found.into_iter().take(SHOWN).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = ["red", "red-a", "blue", "production-db", "default"];
        assert_eq!(near("rde", names), ["red"]);
        assert_eq!(near("Red-A", names), ["red-a", "red"]);
        assert_eq!(near("production", names), ["production-db"]);
        assert_eq!(near("green", names), Vec::<String>::new());
        let error = CliError::NotFound { object: "Vpc/rde".to_owned(), near: near("rde", names) };
        assert_eq!(error.to_string(), "Vpc/rde does not exist; did you mean red?");
    }
}
