//! Who may read metrics: whoever the API server knows by a bearer token, and lets `get` the path that is asked for.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// How long a yes counts: so long may somebody read whose right was taken away.
const YES: Duration = Duration::from_secs(60);
/// How long a no counts: so long waits somebody who was given the right.
const NO: Duration = Duration::from_secs(5);
/// Answers that are kept. The one that ends first makes room.
const KEPT: usize = 256;
/// Questions to the API server at once: a flood of tokens that nobody knows is no flood there.
const AT_ONCE: usize = 4;
/// How long a reader waits for the API server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest token that is looked at, in bytes. Those of ServiceAccounts have about a thousand.
const LONGEST: usize = 16 << 10;

/// What is asked: a token, which is kept as its SHA-256 only, and a path.
type Question = ([u8; 32], String);

/// What the API server said of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Reads,
    Unknown,
    Forbidden,
}

struct Readers {
    client: kube::Client,
    asking: Semaphore,
    /// With the moment when each ends.
    known: Mutex<HashMap<Question, (Verdict, Instant)>>,
}

/// Lets in only who may read, as the API server says: 401 without a token that it knows, 403 without the right, 503 when
/// it does not answer.
pub fn only_readers(router: Router, client: kube::Client) -> Router {
    let readers = Readers { client, asking: Semaphore::new(AT_ONCE), known: Mutex::default() };
    router.layer(from_fn_with_state(Arc::new(readers), guard))
}

async fn guard(State(readers): State<Arc<Readers>>, request: Request, next: Next) -> Response {
    let Some(token) = token(request.headers()) else {
        return refusal(StatusCode::UNAUTHORIZED, "a bearer token is needed");
    };
    match timeout(PATIENCE, readers.verdict(token, request.uri().path())).await {
        Ok(Ok(Verdict::Reads)) => next.run(request).await,
        Ok(Ok(Verdict::Unknown)) => refusal(StatusCode::UNAUTHORIZED, "the API server does not know the token"),
        Ok(Ok(Verdict::Forbidden)) => {
            refusal(StatusCode::FORBIDDEN, "the API server does not let the token's holder get this path")
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "the API server cannot be asked who reads metrics");
            refusal(StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked")
        }
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the API server did not answer in time"),
    }
}

/// The token of `Authorization: Bearer`, RFC 6750, section 2.1. The scheme is written in any case (RFC 9110).
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST).then_some(token)
}

fn refusal(status: StatusCode, why: &'static str) -> Response {
    let body = format!("{why}\n");
    if status == StatusCode::UNAUTHORIZED {
        return (status, [(header::WWW_AUTHENTICATE, "Bearer")], body).into_response();
    }
    (status, body).into_response()
}

impl Readers {
    async fn verdict(&self, token: &str, path: &str) -> kube::Result<Verdict> {
        let question = (Sha256::digest(token).into(), path.to_owned());
        if let Some(known) = self.known(&question) {
            return Ok(known);
        }
        let turn = self.asking.acquire().await;
        // Somebody may have asked the same meanwhile.
        if let Some(known) = self.known(&question) {
            return Ok(known);
        }
        let verdict = ask(&self.client, token, path).await?;
        drop(turn);
        let now = Instant::now();
        let ends = now + if verdict == Verdict::Reads { YES } else { NO };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.retain(|_, (_, ends)| *ends > now);
        }
        if known.len() >= KEPT
            && let Some(first) = known.iter().min_by_key(|(_, (_, ends))| *ends).map(|(question, _)| question.clone())
        {
            known.remove(&first);
        }
        known.insert(question, (verdict, ends));
        Ok(verdict)
    }

    fn known(&self, question: &Question) -> Option<Verdict> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(question).filter(|(_, ends)| *ends > Instant::now()).map(|(verdict, _)| *verdict)
    }
}

async fn ask(client: &kube::Client, token: &str, path: &str) -> kube::Result<Verdict> {
    let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let answer = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = answer.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
        return Ok(Verdict::Unknown);
    };
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
    Ok(if allowed { Verdict::Reads } else { Verdict::Forbidden })
}

#[cfg(test)]
mod tests;
