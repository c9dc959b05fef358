use super::*;
use crate::view::Object;
use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use std::sync::Mutex;
use tokio::time::sleep;

/// Gives every Vpc without an id the length of its name.
fn number(_: &mut Memory, view: &View, _: &Config, _: Timestamp) -> Plan {
    let changes = view.vpcs.iter().filter(|(_, vpc)| vpc.status.is_none()).map(|(name, vpc)| {
        let mut vpc = (**vpc).clone();
        vpc.status = Some(serde_json::from_value(json!({"vpcID": name.len()})).unwrap());
        Change::Status(vpc.into())
    });
    Plan { changes: changes.collect(), ..Plan::default() }
}

type Answers = Arc<Mutex<Box<dyn FnMut(&str, Value) -> (u16, Value) + Send>>>;

struct Rig {
    state: Arc<State>,
    leadership: watch::Sender<Leadership>,
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
    notices: watch::Receiver<Arc<Vec<Notice>>>,
    _config: watch::Sender<Arc<Config>>,
    _stop: watch::Sender<bool>,
}

/// A planner with a server that answers as told, by the name of the Vpc and the body.
fn rig(answers: impl FnMut(&str, Value) -> (u16, Value) + Send + 'static) -> Rig {
    let answers: Answers = Arc::new(Mutex::new(Box::new(answers)));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
        async move {
            let name = request.uri().path().split('/').nth(5).unwrap().to_owned();
            log.lock().unwrap().push((name.clone(), Instant::now()));
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            sleep(Duration::from_millis(5)).await;
            let (code, value) = (answers.lock().unwrap())(&name, body);
            let response = Response::builder().status(code).header("Retry-After", "3");
            Ok::<_, std::convert::Infallible>(response.body(Body::from(value.to_string().into_bytes())).unwrap())
        }
    });
    let state = Arc::new(State::new([]));
    let (config, config_seen) = watch::channel(Arc::new(Config::default()));
    let (leadership, leadership_seen) = watch::channel(Leadership::default());
    let (stop, stopped) = watch::channel(false);
    let (tell, notices) = watch::channel(Arc::default());
    let planner = Planner {
        client: kube::Client::new(service, "default"),
        state: Arc::clone(&state),
        config: config_seen,
        leadership: leadership_seen,
        notices: tell,
        clock: Clock::default(),
        metrics: Metrics::default(),
        plan: number,
    };
    tokio::spawn(planner.run(stopped));
    Rig { state, leadership, asked, notices, _config: config, _stop: stop }
}

impl Rig {
    fn lead(&self, seconds: u64) {
        let term = Instant::now() + Duration::from_secs(seconds);
        self.leadership.send_replace(Leadership { term: Some(term), holder: None, transitions: 0 });
    }

    fn vpc(&self, name: &str) {
        self.state.handle(Event::Found(vpc(name, 1)));
    }

    fn done(&self) -> usize {
        self.state.read(|view| view.vpcs.values().filter(|vpc| vpc.status.is_some()).count())
    }

    fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|(asked, _)| asked == name).count()
    }
}

fn vpc(name: &str, version: u64) -> Object {
    let document = json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}, "spec": {}});
    Object::from_json(Kind::Vpc, document).unwrap()
}

/// The server takes it.
fn taken(body: Value) -> (u16, Value) {
    let mut body = body;
    body["metadata"]["resourceVersion"] = "100".into();
    (200, body)
}

#[tokio::test(start_paused = true)]
async fn each_object_is_written_once_and_then_there_is_silence() {
    let rig = rig(|_, body| taken(body));
    rig.lead(1000);
    for n in 0..200 {
        rig.vpc(&format!("v{n}"));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.done(), 200);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.asked.lock().unwrap().len(), 200);
}

#[tokio::test(start_paused = true)]
async fn nobody_writes_without_leading() {
    let rig = rig(|_, body| taken(body));
    rig.vpc("a");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.asked("a"), 0);
    rig.lead(10);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.asked("a"), 1);
    // The term ends by the clock, without anybody saying so.
    sleep(Duration::from_secs(10)).await;
    rig.vpc("b");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.asked("b"), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_rests_and_holds_up_no_other() {
    let rig = rig(|name, body| if name == "bad" { (500, json!({})) } else { taken(body) });
    rig.lead(1000);
    rig.vpc("bad");
    for n in 0..50 {
        rig.vpc(&format!("v{n}"));
    }
    sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.done(), 50);
    sleep(Duration::from_secs(120)).await;
    // 0.2, 0.4, ... 25.6 and then every 30 seconds.
    let asked = rig.asked("bad");
    assert!((8..=14).contains(&asked), "{asked}");
    rig.vpc("late");
    sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.asked("late"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_planned_anew_with_what_the_watch_told() {
    let rig = rig(|_, body| if body["metadata"]["resourceVersion"] == "1" { (409, json!({})) } else { taken(body) });
    rig.lead(1000);
    rig.vpc("a");
    sleep(Duration::from_secs(1)).await;
    let before = rig.asked("a");
    assert!((1..=10).contains(&before), "{before}");
    rig.state.handle(Event::Found(vpc("a", 2)));
    sleep(Duration::from_secs(2)).await;
    assert_eq!((rig.done(), rig.asked("a")), (1, before + 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_a_pause_gets_it_from_all() {
    let mut first = true;
    let rig = rig(move |_, body| if std::mem::take(&mut first) { (429, json!({})) } else { taken(body) });
    rig.lead(1000);
    rig.vpc("a");
    sleep(Duration::from_millis(100)).await;
    assert_eq!(rig.asked("a"), 1);
    rig.vpc("b");
    sleep(Duration::from_millis(2500)).await;
    assert_eq!((rig.asked("a"), rig.asked("b")), (1, 0));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.done(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_does_not_keep_is_written_once_and_said() {
    let rig = rig(|name, body| {
        let (code, mut body) = taken(body);
        if name == "old" {
            body["status"] = json!({});
        }
        (code, body)
    });
    rig.lead(2000);
    rig.state.handle(Event::Found(vpc("old", 1)));
    rig.vpc("new");
    sleep(Duration::from_secs(1)).await;
    // As its watch tells of it again and again.
    for version in 200..300 {
        let mut seen = vpc("old", version);
        let Object::Vpc(vpc) = &mut seen else { panic!() };
        Arc::make_mut(vpc).status = None;
        rig.state.handle(Event::Found(seen));
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((rig.asked("old"), rig.asked("new")), (1, 1));
    let notices = rig.notices.borrow().clone();
    let told: Vec<_> = notices.iter().map(|notice| (notice.object.name.name.as_str(), notice.reason)).collect();
    assert_eq!(told, [("old", "FieldsDropped")]);
    assert!(notices[0].message.contains("status.vpcID"), "{}", notices[0]);
    // The definition may have been mended meanwhile.
    sleep(DROPPED).await;
    let mut seen = vpc("old", 400);
    let Object::Vpc(vpc) = &mut seen else { panic!() };
    Arc::make_mut(vpc).status = None;
    rig.state.handle(Event::Found(seen));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.asked("old"), 2);
}
