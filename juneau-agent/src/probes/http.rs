//! `httpGet`, as a kubelet does it.

use super::Outcome;
use super::execute::{Connection, Speech, Way, describe};
use http::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use juneau_api::probes::{HttpGet, Protocol, Scheme};
use url::Url;

/// Most requests of one probe, the first among them; what is redirected further has failed.
const REQUESTS: usize = 10;
/// As much of the answer's body is waited for, in bytes. It is thrown away.
const BODY: usize = 10 << 10;
/// Headers that a request has or has not for other reasons than that somebody wishes so.
const OWN: [&str; 5] = ["connection", "content-length", "host", "trailer", "transfer-encoding"];

/// Asks, and follows redirections that stay at the Pod.
pub(super) async fn get(
    way: &Way<'_>,
    get: &HttpGet,
    port: u16,
    agent: Option<&HeaderValue>,
) -> Result<Outcome, Outcome> {
    let first = url(way, get, port)?;
    let (headers, mut host) = headers(get, agent)?;
    let mut url = first.clone();
    for _ in 0..REQUESTS {
        let speech = match (url.scheme(), get.protocol) {
            ("https", _) => Speech::Tls,
            (_, Some(Protocol::Http2)) => Speech::Http2,
            _ => Speech::Http1,
        };
        let port = url.port_or_known_default().unwrap_or(port);
        let mut connection = way.open(port, speech).await?;
        let request = request(&url, &headers, host.as_ref(), &connection)?;
        let answer = connection.send(request).await.map_err(|error| Outcome::failed(describe(&error)))?;
        let status = answer.status().as_u16();
        let location = match status {
            301 | 302 | 303 | 307 | 308 => answer.headers().get(LOCATION).filter(|location| !location.is_empty()),
            _ => None,
        };
        let Some(location) = location else {
            read(answer.into_body()).await?;
            return Ok(match status {
                200..=299 => Outcome::Success,
                300..=599 => Outcome::Status(status),
                other => Outcome::failed(format!("HTTP status {other}")),
            });
        };
        let text = location.to_str().unwrap_or_default();
        let next = url.join(text).map_err(|error| Outcome::failed(format!("redirected to no URL: {error}")))?;
        if next.host() != first.host() || !matches!(next.scheme(), "http" | "https") {
            return Ok(Outcome::Status(status));
        }
        if Url::parse(text).is_ok() {
            // It names where to go to, the host among it.
            host = None;
        }
        url = next;
    }
    Err(Outcome::failed(format!("stopped after {REQUESTS} redirects")))
}

fn url(way: &Way<'_>, get: &HttpGet, port: u16) -> Result<Url, Outcome> {
    let scheme = match get.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let base = format!("{scheme}://{}", std::net::SocketAddr::new(way.address, port));
    let mut url = Url::parse(&base).map_err(Outcome::failed)?;
    let path = get.path.split('#').next().unwrap_or_default();
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    url.set_path(path);
    url.set_query(query);
    Ok(url)
}

/// The headers that are asked for, and which host.
fn headers(get: &HttpGet, agent: Option<&HeaderValue>) -> Result<(HeaderMap, Option<HeaderValue>), Outcome> {
    let (mut headers, mut host) = (HeaderMap::new(), None);
    for header in &get.http_headers {
        let wrong = || Outcome::failed(format!("{:?} cannot be a header", header.name));
        let name: HeaderName = header.name.parse().map_err(|_| wrong())?;
        let value: HeaderValue = header.value.parse().map_err(|_| wrong())?;
        if name == HOST {
            host = host.or(Some(value).filter(|value| !value.is_empty()));
        } else if !OWN.contains(&name.as_str()) {
            headers.append(name, value);
        }
    }
    let defaults = [(USER_AGENT, agent.cloned()), (ACCEPT, Some(HeaderValue::from_static("*/*")))];
    for (name, default) in defaults {
        match headers.get(&name) {
            None => {
                if let Some(default) = default {
                    headers.insert(name, default);
                }
            }
            // Who writes an empty one wants none.
            Some(value) if value.is_empty() => drop(headers.remove(&name)),
            Some(_) => {}
        }
    }
    Ok((headers, host))
}

fn request(
    url: &Url,
    headers: &HeaderMap,
    host: Option<&HeaderValue>,
    connection: &Connection,
) -> Result<Request<Full<Bytes>>, Outcome> {
    let port = url.port_or_known_default().unwrap_or_default();
    let own = format!("{}:{port}", url.host_str().unwrap_or_default());
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let authority = host.and_then(|host| host.to_str().ok()).unwrap_or(&own);
    let mut request = Request::get(match connection.is_http2() {
        true => format!("{}://{authority}{target}", url.scheme()),
        false => target.to_owned(),
    })
    .body(Full::default())
    .map_err(Outcome::failed)?;
    request.headers_mut().extend(headers.clone());
    if !connection.is_http2() {
        let host = authority.parse().map_err(|_| Outcome::failed("the host cannot be a header"))?;
        request.headers_mut().insert(HOST, host);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(request)
}

/// Waits for the beginning of a body: an answer that breaks off in it is none.
async fn read(mut body: Incoming) -> Result<(), Outcome> {
    let mut length = 0;
    while length < BODY
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| Outcome::failed(describe(&error)))?;
        length += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(())
}
