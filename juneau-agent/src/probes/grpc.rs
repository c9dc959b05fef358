//! `grpc`: the method `Check` of `grpc.health.v1.Health`
//! (<https://github.com/grpc/grpc/blob/master/doc/health-checking.md>), whose two messages have one field each.

use super::Outcome;
use super::execute::{Speech, Way, describe};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use juneau_api::probes::{Grpc, GrpcMode};

/// Longest answer that is read, in bytes.
const LIMIT: usize = 16 << 10;
/// Longest text of the server's that is told on, in bytes.
const TEXT: usize = 200;
/// The value of `HealthCheckResponse.status` that means success.
const SERVING: u64 = 1;
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
/// gRPC's status for a method that is not there.
const UNIMPLEMENTED: &str = "12";

/// Asks.
pub(super) async fn check(
    way: &Way<'_>,
    grpc: &Grpc,
    port: u16,
    agent: Option<&HeaderValue>,
) -> Result<Outcome, Outcome> {
    let (speech, scheme) = match grpc.mode {
        Some(GrpcMode::Tls) => (Speech::TlsHttp2, "https"),
        Some(GrpcMode::Plaintext) | None => (Speech::Http2, "http"),
    };
    let mut connection = way.open(port, speech).await?;
    let authority = std::net::SocketAddr::new(way.address, port);
    let mut request = Request::post(format!("{scheme}://{authority}/grpc.health.v1.Health/Check"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(Full::new(question(grpc.service.as_deref().unwrap_or_default())))
        .map_err(Outcome::failed)?;
    if let Some(agent) = agent {
        request.headers_mut().insert(USER_AGENT, agent.clone());
    }
    let answer = connection.send(request).await.map_err(|error| Outcome::failed(describe(&error)))?;
    let (head, body) = answer.into_parts();
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if head.status != 200 || !kind.starts_with("application/grpc") {
        return Ok(Outcome::failed(format!("no gRPC server: HTTP status {}", head.status.as_u16())));
    }
    let body = Limited::new(body, LIMIT).collect().await;
    let body = body.map_err(|error| Outcome::failed(describe(&*error)))?;
    let trailers = body.trailers().unwrap_or(&head.headers).clone();
    judge(&trailers, &body.to_bytes())
}

/// A message in its frame: not compressed, and its length (gRPC over HTTP/2).
fn question(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        // Field 1, length-delimited.
        message.push(0x0a);
        varint(&mut message, service.len());
        message.extend(service.as_bytes());
    }
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend(message);
    frame.into()
}

fn varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn judge(trailers: &HeaderMap, body: &[u8]) -> Result<Outcome, Outcome> {
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "0" => {}
        UNIMPLEMENTED => return Ok(Outcome::failed("the server does not implement the gRPC health protocol")),
        "" => return Ok(Outcome::failed("the answer has no gRPC status")),
        code => {
            let said: String = text("grpc-message").chars().take(TEXT).collect();
            let code: String = code.chars().take(TEXT).collect();
            return Ok(Outcome::failed(format!("gRPC status {code}: {said}")));
        }
    }
    let status = status(body).ok_or_else(|| Outcome::failed("the answer is no HealthCheckResponse"))?;
    if status == SERVING {
        return Ok(Outcome::Success);
    }
    let name = usize::try_from(status).ok().and_then(|index| STATUSES.get(index));
    Ok(Outcome::failed(format!("the service is {}", name.unwrap_or(&"in a status that is not known"))))
}

/// Field 1 of the first message: the last value counts, and without one it is 0. `None` for what is no message.
fn status(body: &[u8]) -> Option<u64> {
    let (head, rest) = body.split_at_checked(5)?;
    let length = usize::try_from(u32::from_be_bytes(head.get(1..5)?.try_into().ok()?)).ok()?;
    let mut message = rest.get(..length).filter(|_| head.first() == Some(&0))?;
    let mut status = 0;
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        match (key >> 3, key & 7) {
            (1, 0) => status = take_varint(&mut message)?,
            (_, 0) => drop(take_varint(&mut message)?),
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(message: &[u8]) -> Vec<u8> {
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend(message);
        frame
    }

    #[test]
    fn questions_are_in_the_wire_form() {
        assert_eq!(&question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&question("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = question(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 0x2f, 0x0a, 0xac, 0x02]);
    }

    #[test]
    fn answers_are_judged() {
        let trailers = |status: &str| HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
        let said = |status: &str, body: &[u8]| judge(&trailers(status), body).unwrap_or_else(|outcome| outcome);
        assert_eq!(said("0", &frame(&[8, 1])), Outcome::Success);
        // Fields of a later version are skipped.
        assert_eq!(said("0", &frame(&[0x12, 2, 1, 1, 0x18, 5, 8, 1, 0x25, 0, 0, 0, 0])), Outcome::Success);
        for (status, body, says) in [
            ("0", frame(&[8, 2]), "NOT_SERVING"),
            ("0", frame(&[]), "UNKNOWN"),
            ("0", frame(&[8, 77]), "not known"),
            ("0", vec![], "no HealthCheckResponse"),
            ("0", vec![1, 0, 0, 0, 2, 8, 1], "no HealthCheckResponse"),
            ("0", vec![0, 0, 0, 0, 9, 8, 1], "no HealthCheckResponse"),
            ("0", frame(&[8]), "no HealthCheckResponse"),
            ("0", frame(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]), "no HealthCheckResponse"),
            ("0", frame(&[0xff; 11]), "no HealthCheckResponse"),
            ("12", vec![], "does not implement"),
            ("5", vec![], "gRPC status 5"),
            ("", vec![], "no gRPC status"),
        ] {
            let Outcome::Failed(reason) = said(status, &body) else { panic!("{status} {body:?}") };
            assert!(reason.contains(says), "{reason}");
        }
    }
}
