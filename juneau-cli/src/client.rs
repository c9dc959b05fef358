//! The way to the API server.

use crate::error::CliError;
use http::Request;
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

/// Which API server, as whom, and how long it may take.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// A kubeconfig file. Absent: `$KUBECONFIG`, `~/.kube/config`, or the ServiceAccount of the Pod.
    pub kubeconfig: Option<PathBuf>,
    /// A context of it. Absent: the current one.
    pub context: Option<String>,
    /// How long a request may take. Absent: for ever.
    pub timeout: Option<Duration>,
}

/// A connection.
#[derive(Clone)]
pub struct Session {
    /// The client.
    pub client: Client,
    /// The API server's address.
    pub server: String,
    /// The context's namespace.
    pub namespace: String,
    /// The API server's version. Absent: it may not be asked.
    pub version: Option<String>,
    /// The API server's clock at the start; this machine's where it does not tell.
    pub now: Timestamp,
    timeout: Option<Duration>,
}

impl Session {
    /// Connects, and asks for the version: what is wrong with the connection shows here.
    ///
    /// # Errors
    /// [`CliError`], which says what helps.
    pub async fn open(access: &Access) -> Result<Self, CliError> {
        // Once for the process; a second time is harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = config(access).await?;
        // One limit for all that a request takes, which says what it is.
        (config.connect_timeout, config.read_timeout) = (None, None);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| classify(&server, &error))?;
        let (version, now) = (None, Timestamp::now());
        let mut session = Self { client, server, namespace, version, now, timeout: access.timeout };
        session.hello().await?;
        Ok(session)
    }

    async fn hello(&mut self) -> Result<(), CliError> {
        let request = Request::get("/version").body(Body::empty());
        let Ok(request) = request else { return Ok(()) };
        let response = self.within(self.client.send(request)).await?;
        if let Some(date) = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok())
            && let Ok(date) = rfc2822::parse(date)
        {
            self.now = date.timestamp();
        }
        let status = response.status();
        let body = self.within(response.into_body().collect_bytes()).await?;
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        if status == http::StatusCode::UNAUTHORIZED {
            let why = body["message"].as_str().unwrap_or("Unauthorized").to_owned();
            return Err(CliError::Credentials { server: self.server.clone(), why });
        }
        self.version = body["gitVersion"].as_str().map(str::to_owned);
        Ok(())
    }

    /// Waits for an answer as long as it may take.
    ///
    /// # Errors
    /// [`CliError`], which says what helps.
    pub async fn within<T>(&self, answer: impl Future<Output = kube::Result<T>>) -> Result<T, CliError> {
        self.try_within(answer).await?.map_err(|error| classify(&self.server, &error))
    }

    /// [`Self::within`], where what the API server refuses is given as it is.
    ///
    /// # Errors
    /// [`CliError::Timeout`].
    pub async fn try_within<T>(
        &self,
        answer: impl Future<Output = kube::Result<T>>,
    ) -> Result<kube::Result<T>, CliError> {
        let Some(limit) = self.timeout else { return Ok(answer.await) };
        let late = |_| CliError::Timeout { server: self.server.clone(), seconds: limit.as_secs() };
        tokio::time::timeout(limit, answer).await.map_err(late)
    }
}

async fn config(access: &Access) -> Result<Config, CliError> {
    let failed = |error: &dyn std::error::Error| CliError::Config { why: last(error) };
    let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
    match (&access.kubeconfig, &access.context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).map_err(|error| CliError::Config { why: error.to_string() })?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(|error| failed(&error))
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(|error| failed(&error)),
        (None, None) => Config::infer().await.map_err(|error| failed(&error)),
    }
}

/// The last cause of an error: the others only say that there is one.
fn last(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// What an error is in this program's words.
#[must_use]
pub fn classify(server: &str, error: &kube::Error) -> CliError {
    let server = server.to_owned();
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            let why = if status.message.is_empty() { "Unauthorized".to_owned() } else { status.message.clone() };
            CliError::Credentials { server, why }
        }
        kube::Error::Api(status) => CliError::Api { server, why: status.message.clone() },
        kube::Error::Auth(error) => CliError::Credentials { server, why: last(error) },
        kube::Error::Service(error) => {
            let why = last(error.as_ref());
            transport(server, why)
        }
        kube::Error::HyperError(error) => transport(server, last(error)),
        other => CliError::Api { server, why: last(other) },
    }
}

fn transport(server: String, why: String) -> CliError {
    // The TLS library's words, for the server's certificate and for ours.
    if why.contains("invalid peer certificate") {
        CliError::Certificate { server, why }
    } else if why.contains("received fatal alert") {
        CliError::Credentials { server, why }
    } else {
        CliError::Unreachable { server, why }
    }
}
