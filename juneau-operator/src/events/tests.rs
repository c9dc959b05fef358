use super::*;
use crate::plan::Target;

fn notice(name: &str, reason: &'static str, message: &str) -> Notice {
    let object = Target {
        kind: Kind::Subnet,
        name: ObjectName::new("", name),
        uid: format!("uid-{name}"),
        resource_version: "1".into(),
    };
    Notice { object, warning: true, at_once: false, reason, message: message.into() }
}

/// What stands already when the clock is at `start`.
fn noted(filter: &mut Filter, start: Instant, notices: &[Notice]) {
    assert!(filter.handle(start - SETTLE, notices).0.is_empty());
}

#[test]
fn a_cause_that_ends_soon_is_not_told() {
    let start = Instant::now();
    let mut filter = Filter::new(start);
    // A Subnet that was seen before its Vpc, and one whose Vpc does not come.
    let early = notice("a", "VpcNotFound", "Vpc/a does not exist");
    let wrong = notice("b", "VpcNotFound", "Vpc/b does not exist");
    let both = [early, wrong.clone()];
    let (told, next) = filter.handle(start, &both);
    assert_eq!((told, next), (vec![], Some(start + SETTLE)));
    let (told, next) = filter.handle(start + Duration::from_millis(300), std::slice::from_ref(&wrong));
    assert_eq!((told, next), (vec![], Some(start + SETTLE)));
    assert_eq!(filter.handle(start + SETTLE, std::slice::from_ref(&wrong)), (vec![&wrong], None));
    // What is put right by the plan that tells it is gone by the next.
    let done = Notice { at_once: true, ..notice("c", "EndpointMismatch", "it is put right") };
    let now = [wrong.clone(), done.clone()];
    assert_eq!(filter.handle(start + SETTLE, &now), (vec![&done], None));
    // Coming and going, it never lasts.
    for second in 3..60 {
        let now = start + Duration::from_secs(second);
        let (told, _) = filter.handle(now, &both);
        assert!(told.is_empty(), "{told:?}");
        let (told, next) = filter.handle(now + Duration::from_millis(900), std::slice::from_ref(&wrong));
        assert_eq!((told, next), (vec![], None));
    }
}

#[test]
fn a_cause_is_told_once() {
    let start = Instant::now() + SETTLE;
    let mut filter = Filter::new(start);
    let notices = [notice("a", "SubnetExhausted", "full"), notice("a", "VpcNotReady", "no")];
    noted(&mut filter, start, &notices);
    assert_eq!(filter.handle(start, &notices).0.len(), 2);
    for second in 1..500 {
        assert!(filter.handle(start + Duration::from_secs(second), &notices).0.is_empty());
    }
    // It went and came back: not at once again, but later.
    let gone = start + Duration::from_secs(500);
    assert!(filter.handle(gone, &[]).0.is_empty());
    assert!(filter.handle(gone + Duration::from_secs(60), &notices).0.is_empty());
    assert!(filter.handle(gone + Duration::from_secs(700), &[]).0.is_empty());
    assert!(filter.handle(gone + Duration::from_secs(701), &notices).0.is_empty());
    assert_eq!(filter.handle(gone + Duration::from_secs(703), &notices).0.len(), 2);
}

#[test]
fn a_text_that_changes_all_the_time_is_told_once_a_minute() {
    let start = Instant::now() + SETTLE;
    let mut filter = Filter::new(start);
    noted(&mut filter, start, &[notice("a", "SubnetExhausted", "first")]);
    let mut told = 0;
    for second in 0..600 {
        let notices = [notice("a", "SubnetExhausted", &format!("{second} wait"))];
        told += filter.handle(start + Duration::from_secs(second), &notices).0.len();
    }
    assert_eq!(told, 10);
}

#[test]
fn two_texts_of_one_cause_are_told_once_each() {
    let start = Instant::now();
    let mut filter = Filter::new(start);
    let notices = [notice("a", "SubnetExhausted", "interface eth0"), notice("a", "SubnetExhausted", "interface eth1")];
    let told = (0..7200).map(|second| filter.handle(start + Duration::from_secs(second), &notices).0.len());
    assert_eq!(told.sum::<usize>(), 2);
    filter.failed(&notices[1]);
    let told = (7200..7400).map(|second| filter.handle(start + Duration::from_secs(second), &notices).0.len());
    assert_eq!(told.sum::<usize>(), 1, "what was not taken is told again");
}

/// A server that answers Events in this way, one after the other, and how many it was asked to take.
async fn told_to(answers: Vec<(u16, &'static str)>, seconds: u64) -> (usize, u64) {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |_: Request<Body>| {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let (status, body) = answers.get(n).copied().unwrap_or((201, "{}"));
        let answer = http::Response::builder().status(status).body(Body::from(body.as_bytes().to_vec())).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(answer))
    });
    let (notices, receiver) = watch::channel(Arc::default());
    let sent = Counter::default();
    let task = tokio::spawn(tell(kube::Client::new(service, "default"), "one".into(), receiver, sent.clone()));
    notices.send_replace(Arc::new(vec![notice("a", "SubnetExhausted", "full")]));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    task.abort();
    (asked.load(std::sync::atomic::Ordering::SeqCst), sent.get())
}

#[tokio::test(start_paused = true)]
async fn what_the_server_did_not_take_is_told_again_unless_it_never_will() {
    assert_eq!(told_to(vec![], 60).await, (1, 1));
    assert_eq!(told_to(vec![(500, ""), (429, "{}")], 4).await, (1, 0));
    assert_eq!(told_to(vec![(500, ""), (429, "{}")], 60).await, (3, 1));
    let ends = r#"{"details": {"causes": [{"reason": "NamespaceTerminating"}]}}"#;
    for never in [(403, "{}"), (404, "{}"), (403, ends)] {
        assert_eq!(told_to(vec![never], 60).await, (1, 0));
    }
}

#[test]
fn many_causes_at_once_are_told_one_after_the_other() {
    let start = Instant::now() + SETTLE;
    let mut filter = Filter::new(start);
    let notices: Vec<_> = (0..100).map(|n| notice(&format!("s{n}"), "SubnetExhausted", "full")).collect();
    noted(&mut filter, start, &notices);
    let (first, mut next) = filter.handle(start, &notices);
    assert_eq!(first.len(), BURST as usize);
    let mut told = first.len();
    let mut now = start;
    while let Some(due) = next {
        assert!(due > now);
        now = due;
        let (more, again) = filter.handle(now, &notices);
        told += more.len();
        next = again;
    }
    assert_eq!(told, 100);
    assert!(now >= start + EVERY * 74 && now <= start + EVERY * 76, "{:?}", now - start);
}

#[test]
fn an_event_says_what_the_api_wants() {
    let now: Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
    let long = "é".repeat(2000);
    let one = event(&notice("a", "SubnetExhausted", &long), now, "pod-1");
    assert_eq!(one["eventTime"], "2026-01-02T03:04:05.678901Z");
    assert_eq!(one["metadata"]["namespace"], "default");
    assert!(one["note"].as_str().unwrap().len() <= NOTE_LIMIT);
    assert_eq!(one["regarding"]["kind"], "Subnet");
    // The same cause has the same name, another one another.
    assert_eq!(
        one["metadata"]["name"],
        event(&notice("a", "SubnetExhausted", &long), now, "pod-2")["metadata"]["name"]
    );
    assert_ne!(one["metadata"]["name"], event(&notice("a", "SubnetExhausted", "x"), now, "pod-1")["metadata"]["name"]);
    let name = event(&notice(&"x".repeat(253), "R", "m"), now, "p")["metadata"]["name"].as_str().unwrap().len();
    assert!(name <= 253);
}
