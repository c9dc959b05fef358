use super::*;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use std::convert::Infallible;
use tokio::time::{sleep, timeout};

type Asked = Arc<Mutex<Vec<(String, Instant)>>>;

/// A client of a server that answers as told, by the request's path and query.
fn server(answer: impl Fn(&str) -> Response<String> + Clone + Send + Sync + 'static) -> (kube::Client, Asked) {
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        log.lock().unwrap().push((uri.clone(), Instant::now()));
        let answer = answer(&uri).map(|text| Body::from(text.into_bytes()));
        async move {
            sleep(Duration::from_millis(1)).await;
            Ok::<_, Infallible>(answer)
        }
    });
    (polite(kube::Client::new(service, "default")), asked)
}

fn count(asked: &Asked, what: &str) -> usize {
    asked.lock().unwrap().iter().filter(|(uri, _)| uri.contains(what)).count()
}

fn list() -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": []}).to_string()
}

/// Follows ConfigMaps for a while; how many times the list was complete.
async fn follow(client: kube::Client, seconds: u64) -> usize {
    let events = watcher::watcher(Api::<ConfigMap>::all(client), watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut lists = 0;
    let _ = timeout(Duration::from_secs(seconds), async {
        while let Some(event) = events.next().await {
            lists += usize::from(matches!(event, Ok(watcher::Event::InitDone)));
        }
    })
    .await;
    lists
}

#[test]
fn paths_name_resources() {
    for (path, is) in [
        ("/api/v1/pods", "api/v1/pods"),
        ("/api/v1/namespaces", "api/v1/namespaces"),
        ("/api/v1/namespaces/red/secrets/x", "api/v1/secrets"),
        ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "apis/coordination.k8s.io/v1/leases"),
        ("/apis/juneau.loutres.me/v1alpha1/vpcs/red/status", "apis/juneau.loutres.me/v1alpha1/vpcs"),
        ("/version", "version/"),
    ] {
        assert_eq!(resource(path), is, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_begun_at_a_pace() {
    let (client, asked) = server(|uri| Response::new(if uri.contains("watch=true") { String::new() } else { list() }));
    assert_eq!(follow(client, 100).await, 1);
    let watches = count(&asked, "watch=true");
    assert!((20..=26).contains(&watches), "{watches}");
}

#[test]
fn selected_parts_of_a_resource_wait_on_their_own() {
    let lane = |text: &str| lane(&text.parse().unwrap());
    let all = lane("/api/v1/pods?watch=true&resourceVersion=5");
    assert_eq!(all, lane("/api/v1/pods?limit=500"));
    let node = lane("/api/v1/pods?&fieldSelector=spec.nodeName%3Da&watch=true");
    assert_ne!(all, node);
    assert_ne!(node, lane("/api/v1/pods?&fieldSelector=spec.nodeName%3Db&watch=true"));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_asked_for_counts_for_every_part_of_a_resource() {
    let (client, asked) = server(|uri| match uri.contains("spec.a") {
        true => Response::builder().status(429).header("Retry-After", "20").body("busy".to_owned()).unwrap(),
        false => Response::new(list()),
    });
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let begun = Instant::now();
    maps.list(&ListParams::default().fields("spec.a=1")).await.unwrap_err();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::all(client);
    secrets.list(&ListParams::default().fields("spec.b=1")).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody else waits: {:?}", begun.elapsed());
    maps.list(&ListParams::default().fields("spec.b=1")).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(count(&asked, "configmaps"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_listed_anew_wherever_the_server_says_so() {
    for in_stream in [false, true] {
        let (client, asked) = server(move |uri| {
            let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
            match (uri.contains("watch=true"), in_stream) {
                (false, _) => Response::new(list()),
                (true, true) => Response::new(format!("{}\n", json!({"type": "ERROR", "object": status}))),
                (true, false) => Response::builder().status(410).body("gone".to_owned()).unwrap(),
            }
        });
        let lists = follow(client, 100).await;
        assert!((20..=26).contains(&lists), "{lists} lists, in the stream: {in_stream}");
        assert!(count(&asked, "") <= 2 * 26);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_left_alone_for_as_long_as_the_server_asks() {
    for code in [429, 503] {
        let (client, asked) = server(move |uri| {
            if uri.contains("configmaps") {
                Response::builder().status(code).header("Retry-After", "20").body("busy".to_owned()).unwrap()
            } else {
                Response::new(list())
            }
        });
        follow(client.clone(), 65).await;
        let times: Vec<_> = asked.lock().unwrap().iter().map(|(_, at)| *at).collect();
        assert!((3..=4).contains(&times.len()), "{}", times.len());
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(20)));
        // Nobody else waits.
        let begun = Instant::now();
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::all(client);
        secrets.list(&ListParams::default()).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}

#[test]
fn an_error_is_told_with_its_last_cause_and_nothing_twice() {
    #[derive(Debug, thiserror::Error)]
    #[error("list failed: {0}")]
    struct Shown(#[source] Hidden);
    #[derive(Debug, thiserror::Error)]
    #[error("no\n connection")]
    struct Hidden(#[source] std::io::Error);
    let refused = || Hidden(std::io::Error::other("refused"));
    assert_eq!(with_causes(&refused()), "no connection: refused");
    assert_eq!(with_causes(&Shown(refused())), "list failed: no connection: refused");
}
