//! The HTTP around [`review`].

use super::ask::{Answer, ask};
use super::{Denial, MUTATED, REVIEWED, Reference, Request, Said, probes, review};
use crate::plan::Config;
use crate::state::State;
use crate::view::View;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use k8s_openapi::ByteString;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Longest body that is read, in bytes. An object is at most 1.5 MiB in etcd, and an update carries two.
const BODY_LIMIT: usize = 8 << 20;
/// How long a refusal waits for the view to catch up with what the user did just before, and for what the API server says.
const PATIENCE: Duration = Duration::from_millis(1000);

/// Labels of the counter of answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Labels {
    /// Of which kind the object was.
    pub kind: &'static str,
    /// `allowed`, `denied` or `error`.
    pub verdict: &'static str,
}

/// Answers by kind and verdict.
pub type Counts = Family<Labels, Counter>;

/// What answers questions.
#[derive(Clone)]
pub struct Admission {
    /// What exists, as far as it was seen.
    pub state: Arc<State>,
    /// Where objects are asked for that were not seen.
    pub client: kube::Client,
    /// What the plan goes by.
    pub config: watch::Receiver<Arc<Config>>,
    /// Counts answers.
    pub counts: Counts,
}

/// Answers a question from what exists.
type Answering = fn(&View, &Config, &Request) -> Result<Said, Denial>;

/// The paths of the webhook; with `probes` the one that rewrites probes among them.
pub fn router(admission: Admission, probes: bool) -> Router {
    let validating: Answering =
        |view, config, request| review(view, config, request).map(|warnings| Said { warnings, ..Said::default() });
    let mut paths: Vec<(&str, &str, Answering)> =
        REVIEWED.iter().map(|(_, kind, path)| (*kind, *path, validating)).collect();
    if probes {
        paths.push((MUTATED.1, MUTATED.2, probes::mutate));
    }
    let mut router = Router::new();
    for (kind, path, answering) in paths {
        let admission = admission.clone();
        router = router.route(
            path,
            post(move |body: Bytes| async move {
                let response = admission.answer(kind, answering, &body).await;
                let verdict = match &response {
                    Ok((true, _)) => "allowed",
                    Ok((false, _)) => "denied",
                    Err(_) => "error",
                };
                admission.counts.get_or_create(&Labels { kind, verdict }).inc();
                match response {
                    Ok((_, review)) => axum::Json(review).into_response(),
                    Err(error) => error.into_response(),
                }
            }),
        );
    }
    router.layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// A question that could not be answered.
struct Unanswered(StatusCode, String);

impl IntoResponse for Unanswered {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}

impl Admission {
    /// Whether it is allowed, and the whole answer.
    async fn answer(&self, kind: &str, answering: Answering, body: &[u8]) -> Result<(bool, Value), Unanswered> {
        let bad = |message: String| Unanswered(StatusCode::BAD_REQUEST, message);
        let value: Value = serde_json::from_slice(body).map_err(|error| bad(format!("not JSON: {error}")))?;
        let is = |field: &str, wanted: &str| value.get(field).and_then(Value::as_str) == Some(wanted);
        if !is("kind", "AdmissionReview") || !is("apiVersion", "admission.k8s.io/v1") {
            return Err(bad("not an AdmissionReview of admission.k8s.io/v1".into()));
        }
        let request = value.get("request").cloned().unwrap_or_default();
        let request: Request = serde_json::from_value(request).map_err(|error| bad(format!("request: {error}")))?;
        if request.kind.kind != kind {
            return Err(bad(format!("this path reviews {kind}, not {}", request.kind.kind)));
        }
        let verdict = self.verdict(answering, &request).await?;
        let allowed = verdict.is_ok();
        let mut response = json!({ "uid": request.uid, "allowed": allowed });
        match verdict {
            Ok(Said { warnings, patch }) => {
                if !warnings.is_empty() {
                    response["warnings"] = warnings.into();
                }
                if !patch.is_empty() {
                    let text = ByteString(Value::from(patch).to_string().into_bytes());
                    response["patchType"] = "JSONPatch".into();
                    response["patch"] = serde_json::to_value(text).map_err(|error| bad(error.to_string()))?;
                }
            }
            Err(denial) => {
                response["status"] = json!({
                    "status": "Failure", "reason": "Forbidden", "code": 403, "message": denial.message,
                });
            }
        }
        Ok((allowed, json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })))
    }

    /// Reviews, and again as long as a newer view, or what the API server says of an object that it lacks, may change a
    /// refusal.
    async fn verdict(&self, answering: Answering, request: &Request) -> Result<Result<Said, Denial>, Unanswered> {
        let deadline = Instant::now() + PATIENCE;
        let mut changes = self.state.changes();
        let mut answers: Vec<(Reference, Option<Answer>)> = Vec::new();
        let mut asking = JoinSet::new();
        loop {
            changes.mark_unchanged();
            if !self.state.is_synced() {
                let unready = || {
                    let text = "the operator has not read all objects yet; try again".to_owned();
                    Unanswered(StatusCode::SERVICE_UNAVAILABLE, text)
                };
                return match timeout_at(deadline, changes.changed()).await {
                    Ok(Ok(())) => continue,
                    _ => Err(unready()),
                };
            }
            let config = Arc::clone(&self.config.borrow());
            let verdict = self.state.read(|view| {
                let found = answers.iter().filter_map(|(_, answer)| match answer {
                    Some(Answer::Found(object)) => Some(object),
                    _ => None,
                });
                let mut lacking = found.filter(|object| view.get(object.kind(), &object.name()).is_none()).peekable();
                if lacking.peek().is_none() {
                    return answering(view, &config, request);
                }
                let mut whole = view.clone();
                lacking.cloned().for_each(|object| whole.insert(object));
                answering(&whole, &config, request)
            });
            let denial = match verdict {
                Err(denial) if denial.lag => denial,
                verdict => return Ok(verdict),
            };
            if let Some(missing) = &denial.missing {
                match answers.iter().find(|(asked, _)| asked == missing) {
                    Some((_, Some(Answer::Absent))) => return Ok(Err(denial)),
                    Some(_) => {}
                    None => {
                        answers.push((missing.clone(), None));
                        let (client, missing) = (self.client.clone(), missing.clone());
                        asking.spawn(async move { (ask(&client, &missing).await, missing) });
                    }
                }
            }
            let changed = async {
                tokio::select! {
                    changed = changes.changed() => changed.is_ok(),
                    Some(Ok((answer, asked))) = asking.join_next() => {
                        answers.retain(|(reference, _)| *reference != asked);
                        answers.push((asked, Some(answer)));
                        true
                    }
                }
            };
            if timeout_at(deadline, changed).await != Ok(true) {
                return Ok(Err(unsure(denial, &answers)));
            }
        }
    }
}

/// The refusal, with why the API server did not say whether the object is missing that it is about.
fn unsure(mut denial: Denial, answers: &[(Reference, Option<Answer>)]) -> Denial {
    let asked = |missing: &Reference| answers.iter().find(|(asked, _)| asked == missing).map(|(_, answer)| answer);
    let why = match denial.missing.as_ref().and_then(asked) {
        Some(None) => "it did not answer in time",
        Some(Some(Answer::Unknown(why))) => why,
        _ => return denial,
    };
    denial.message += &format!(
        " (this is what the operator has seen; the API server could not tell it whether there is more: {why}; if it was \
         made just now, try again)"
    );
    denial
}
