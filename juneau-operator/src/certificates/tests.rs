use super::*;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{ServerName, UnixTime};
use std::sync::Arc;

fn hosts() -> BTreeSet<String> {
    ["127.0.0.1", "localhost", "fd00::1"].map(str::to_owned).into()
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn days(n: u64) -> Duration {
    Duration::from_secs(n * DAY)
}

/// Whether a client that trusts `authorities` accepts `bundle` as `host`.
fn accepted(authorities: &str, bundle: &Bundle, host: &str, when: SystemTime) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::new(rustls::crypto::ring::default_provider()),
    )
    .build()
    .unwrap();
    let leaf = CertificateDer::from_pem_slice(bundle.certificate.as_bytes()).unwrap();
    let when = UnixTime::since_unix_epoch(when.duration_since(UNIX_EPOCH).unwrap());
    verifier.verify_server_cert(&leaf, &[], &ServerName::try_from(host.to_owned()).unwrap(), &[], when).is_ok()
}

#[test]
fn a_certificate_stands_for_its_hosts_and_time() {
    let bundle = Bundle::make(&hosts(), now(), None).unwrap();
    assert_eq!(bundle.fault(&hosts(), now()), None);
    assert_eq!(bundle.hosts(), hosts());
    for host in ["127.0.0.1", "localhost", "fd00::1"] {
        assert!(accepted(&bundle.authorities, &bundle, host, now()), "{host}");
    }
    assert!(!accepted(&bundle.authorities, &bundle, "127.0.0.2", now()));
    // An hour of clock skew either way harms nothing.
    let hour = Duration::from_secs(3600);
    assert!(accepted(&bundle.authorities, &bundle, "localhost", now() - hour));
    assert_eq!(bundle.fault(&hosts(), now() - hour), None);
    assert!(!accepted(&bundle.authorities, &bundle, "localhost", now() + days(91)));
}

#[test]
fn a_certificate_is_replaced_before_it_ends_or_when_it_is_of_no_use() {
    let bundle = Bundle::make(&hosts(), now(), None).unwrap();
    assert_eq!(bundle.fault(&hosts(), now() + days(59)), None);
    assert_eq!(bundle.fault(&hosts(), now() + days(61)), Some(Reason::Ends));
    assert_eq!(bundle.fault(&hosts(), now() + days(4000)), Some(Reason::Ends));
    let other: BTreeSet<String> = ["192.0.2.1".to_owned()].into();
    assert_eq!(bundle.fault(&other, now()), Some(Reason::Host("192.0.2.1".into())));
    let alien = Bundle::make(&hosts(), now(), None).unwrap();
    for broken in [
        Bundle { key: alien.key, ..bundle.clone() },
        Bundle { key: "no key".into(), ..bundle.clone() },
        Bundle { certificate: String::new(), ..bundle.clone() },
        Bundle { authorities: "no certificate".into(), ..bundle.clone() },
    ] {
        assert!(matches!(broken.fault(&hosts(), now()), Some(Reason::Unusable(_))));
        // And what cannot be used does not hinder its replacement.
        assert_eq!(Bundle::make(&hosts(), now(), Some(&broken)).unwrap().fault(&hosts(), now()), None);
    }
}

#[test]
fn the_certificate_before_stays_trusted_for_one_renewal() {
    let first = Bundle::make(&hosts(), now(), None).unwrap();
    let second = Bundle::make(&hosts(), now() + days(60), Some(&first)).unwrap();
    let third = Bundle::make(&hosts(), now() + days(80), Some(&second)).unwrap();
    let at = now() + days(80);
    assert!(
        accepted(&second.authorities, &first, "localhost", at)
            && accepted(&second.authorities, &second, "localhost", at)
    );
    assert!(
        accepted(&third.authorities, &second, "localhost", at) && accepted(&third.authorities, &third, "localhost", at)
    );
    assert!(!accepted(&third.authorities, &first, "localhost", at));
}

fn secret(bundle: &Bundle) -> Secret {
    let data = [("ca.crt", &bundle.authorities), ("tls.crt", &bundle.certificate), ("tls.key", &bundle.key)];
    let mut secret = Secret::default();
    secret.metadata.resource_version = Some("7".into());
    secret.data = Some(data.into_iter().map(|(k, v)| (k.to_owned(), ByteString(v.clone().into_bytes()))).collect());
    secret
}

fn configuration(trusts: &[Option<&str>]) -> ValidatingWebhookConfiguration {
    let webhooks = trusts.iter().enumerate().map(|(n, trusts)| ValidatingWebhook {
        name: format!("w{n}"),
        client_config: WebhookClientConfig {
            ca_bundle: trusts.map(|text| ByteString(text.as_bytes().to_vec())),
            ..WebhookClientConfig::default()
        },
        ..ValidatingWebhook::default()
    });
    ValidatingWebhookConfiguration { webhooks: Some(webhooks.collect()), ..ValidatingWebhookConfiguration::default() }
}

#[test]
fn the_configuration_trusts_a_certificate_before_it_is_served() {
    let (h, t) = (hosts(), now());
    let old = Bundle::make(&h, t - days(61), None).unwrap();
    // At the start there is nothing.
    assert!(matches!(
        decide(None, None, None, &h, t, true),
        Step::Store { reason: Reason::Missing, before: None, version: None }
    ));
    // Who takes the Secret away, or breaks it, does not take the trust from what is served.
    let mut broken = secret(&old);
    broken.data.as_mut().unwrap().insert("tls.key".into(), ByteString(b"no key".to_vec()));
    for stored in [None, Some(&broken)] {
        let Step::Store { before, .. } = decide(stored, None, Some(&old), &h, t, true) else { panic!() };
        assert_eq!(before.as_ref(), Some(&old));
    }
    // One that ends soon is renewed on top of the version that was seen.
    let Step::Store { reason, before, version } = decide(Some(&secret(&old)), None, None, &h, t, true) else {
        panic!()
    };
    assert_eq!((reason, before.as_ref(), version.as_deref()), (Reason::Ends, Some(&old), Some("7")));

    let new = Bundle::make(&h, t, Some(&old)).unwrap();
    let stored = secret(&new);
    let told = configuration(&[Some(&new.authorities), Some(&new.authorities)]);
    let untold = configuration(&[Some(&new.authorities), Some(&old.authorities), None]);
    let Step::Trust { webhooks, authorities } = decide(Some(&stored), Some(&untold), Some(&old), &h, t, true) else {
        panic!()
    };
    assert_eq!((webhooks, authorities), (vec!["w1".to_owned(), "w2".to_owned()], new.authorities.clone()));
    // While the configuration cannot be written the old one is served, unless it has ended.
    assert_eq!(decide(Some(&stored), Some(&untold), Some(&old), &h, t, false), Step::Nothing);
    let ended = Bundle::make(&h, t - days(91), None).unwrap();
    assert_eq!(decide(Some(&stored), Some(&untold), Some(&ended), &h, t, false), Step::Serve(new.clone()));
    assert_eq!(decide(Some(&stored), Some(&untold), None, &h, t, false), Step::Serve(new.clone()));

    assert_eq!(decide(Some(&stored), Some(&told), Some(&old), &h, t, true), Step::Serve(new.clone()));
    assert_eq!(decide(Some(&stored), Some(&told), Some(&new), &h, t, true), Step::Nothing);
    assert_eq!(decide(Some(&stored), None, Some(&new), &h, t, true), Step::Nothing);
}
