use super::*;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::time::{advance, sleep};

/// A Lease in memory, with the server's rules.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Server>>);

#[derive(Debug, Default)]
struct Server {
    stored: Option<Stored>,
    version: u64,
    down: bool,
    silent: bool,
    writes: u64,
}

impl Memory {
    async fn silence(&self) {
        if self.0.lock().unwrap().silent {
            std::future::pending::<()>().await;
        }
    }
}

impl LeaseStore for Memory {
    async fn get(&self) -> Result<Option<Stored>, StoreError> {
        self.silence().await;
        let server = self.0.lock().unwrap();
        if server.down {
            return Err(StoreError::Other("down".into()));
        }
        Ok(server.stored.clone())
    }

    async fn put(&self, record: Record, version: Option<String>) -> Result<Stored, StoreError> {
        self.silence().await;
        let mut server = self.0.lock().unwrap();
        if server.down {
            return Err(StoreError::Other("down".into()));
        }
        if server.stored.as_ref().map(|stored| stored.version.clone()) != version {
            return Err(StoreError::Conflict);
        }
        server.version += 1;
        server.writes += 1;
        let stored = Stored { record, version: server.version.to_string() };
        server.stored = Some(stored.clone());
        Ok(stored)
    }
}

struct Replica {
    told: watch::Receiver<Leadership>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

fn start(server: &Memory, identity: &str) -> Replica {
    start_in(server, identity, None)
}

fn start_in(server: &Memory, identity: &str, pod: Option<&'static str>) -> Replica {
    let (tell, told) = watch::channel(Leadership::default());
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(lead(server.clone(), identity.to_owned(), pod, Timing::default(), tell, stopped));
    Replica { told, stop, task }
}

async fn leads(replica: &mut Replica) {
    tokio::time::timeout(Duration::from_secs(60), replica.told.wait_for(Leadership::is_leader)).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_takes_over_when_it_goes() {
    let server = Memory::default();
    let mut a = start(&server, "a");
    leads(&mut a).await;
    let mut b = start(&server, "b");
    sleep(Duration::from_secs(60)).await;
    assert!(a.told.borrow().is_leader() && !b.told.borrow().is_leader());
    assert_eq!(b.told.borrow().holder.as_deref(), Some("a"));

    // Given back: the other need not wait for the end of the term.
    let asked = tokio::time::Instant::now();
    a.stop.send_replace(true);
    a.task.await.unwrap();
    assert!(!a.told.borrow().is_leader());
    leads(&mut b).await;
    assert!(asked.elapsed() <= Timing::default().retry_period, "{:?}", asked.elapsed());
    assert_eq!(b.told.borrow().transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_after_its_term_and_not_before() {
    let server = Memory::default();
    let mut a = start(&server, "a");
    leads(&mut a).await;
    let mut b = start(&server, "b");
    sleep(Duration::from_secs(5)).await;
    a.task.abort();
    let term = a.told.borrow().term.unwrap();
    let last = tokio::time::Instant::now();
    leads(&mut b).await;
    assert!(tokio::time::Instant::now() > term, "two leaders");
    assert!(last.elapsed() <= Duration::from_secs(18), "{:?}", last.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_pods_next_process_takes_its_predecessors_place_at_once() {
    for (pod, at_once) in [(Some("a"), true), (Some("other"), false), (None, false)] {
        let server = Memory::default();
        let mut first = start_in(&server, "a_1", Some("a"));
        leads(&mut first).await;
        first.task.abort();
        let killed = tokio::time::Instant::now();
        let mut second = start_in(&server, "a_2", pod);
        leads(&mut second).await;
        assert_eq!(killed.elapsed() < Duration::from_millis(100), at_once, "{pod:?}: {:?}", killed.elapsed());
        assert_eq!(second.told.borrow().transitions, 1, "{pod:?}");
        assert_eq!(second.told.borrow().holder.as_deref(), Some("a_2"));
    }
}

#[test]
fn a_predecessor_that_lives_and_a_successor_are_waited_for() {
    let start = Instant::now();
    let timing = Timing::default();
    let held = |holder: &str, version: &str| {
        let record = Record { holder: holder.into(), duration: Duration::from_secs(15), transitions: 3 };
        Some(Stored { record, version: version.into() })
    };
    // It renewed while its place was to be taken.
    let mut elector = Elector::new("a_2".into(), timing).of_pod("a");
    elector.handle_look(start, held("a_1", "1"));
    let Step::Write { record, version } = elector.poll(start) else { panic!() };
    assert_eq!((record.holder.as_str(), record.transitions, version.as_deref()), ("a_2", 4, Some("1")));
    elector.handle_conflict();
    elector.handle_look(start, held("a_1", "2"));
    let soon = start + Duration::from_secs(3);
    assert_eq!(elector.poll(soon), Step::Look);
    assert!(matches!(elector.poll(start + Duration::from_secs(16)), Step::Look), "looked at before it is judged");
    elector.handle_look(start + Duration::from_secs(16), held("a_1", "2"));
    assert!(matches!(elector.poll(start + Duration::from_secs(16)), Step::Write { .. }), "after its term");

    // This process is the earlier one: it was paused, and the Pod's next one has the Lease.
    let mut elector = Elector::new("a_1".into(), timing).of_pod("a");
    elector.handle_look(start, None);
    elector.handle_written(start, start, held("a_1", "1").unwrap());
    let later = start + Duration::from_secs(60);
    elector.handle_conflict();
    elector.handle_look(later, held("a_2", "2"));
    assert_eq!(elector.poll(later + Duration::from_secs(3)), Step::Look);

    // Another Pod whose name begins alike is another Pod.
    let mut elector = Elector::new("a_1".into(), timing).of_pod("a");
    elector.handle_look(start, held("ab_1", "1"));
    assert_eq!(elector.poll(start + Duration::from_secs(3)), Step::Look);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_a_server_stops_writing_before_another_could_begin() {
    let server = Memory::default();
    let mut a = start(&server, "a");
    leads(&mut a).await;
    server.0.lock().unwrap().down = true;
    sleep(Duration::from_secs(9)).await;
    sleep(Duration::from_secs(3)).await;
    assert!(!a.told.borrow().is_leader());
    server.0.lock().unwrap().down = false;
    leads(&mut a).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_six_seconds_costs_no_term() {
    for begin in 0..20 {
        let server = Memory::default();
        let mut a = start(&server, "a");
        leads(&mut a).await;
        sleep(Duration::from_millis(20_100 + 250 * begin)).await;
        server.0.lock().unwrap().down = true;
        sleep(Duration::from_secs(6)).await;
        server.0.lock().unwrap().down = false;
        let mut ended = a.told.clone();
        let end = ended.wait_for(|state| !state.is_leader());
        assert!(tokio::time::timeout(Duration::from_secs(20), end).await.is_err(), "away after {begin} quarters");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_is_told_when_it_ends_whatever_is_waited_for() {
    let server = Memory::default();
    let mut a = start(&server, "a");
    leads(&mut a).await;
    server.0.lock().unwrap().silent = true;
    let end = a.told.borrow().term.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), a.told.wait_for(|state| state.term.is_none()));
    told.await.unwrap().unwrap();
    // To the timer's millisecond.
    let late = tokio::time::Instant::now().duration_since(end);
    assert!(late <= Duration::from_millis(2), "{late:?}");
}

#[test]
fn the_clock_inside_the_lease_means_nothing() {
    // The record has no time at all: whatever another's clock says, only changes that were seen count.
    let start = Instant::now();
    let timing = Timing::default();
    let mut elector = Elector::new("b".into(), timing);
    let of_a = |version: &str| {
        Some(Stored {
            record: Record { holder: "a".into(), duration: Duration::from_secs(15), transitions: 3 },
            version: version.into(),
        })
    };
    elector.handle_look(start, of_a("1"));
    for second in 1..14 {
        let now = start + Duration::from_secs(second);
        assert!(!matches!(elector.poll(now), Step::Write { .. }), "after {second} s");
        elector.handle_look(now, of_a("1"));
    }
    // Renewed at the last moment: the wait begins anew.
    elector.handle_look(start + Duration::from_secs(14), of_a("2"));
    assert!(!matches!(elector.poll(start + Duration::from_secs(20)), Step::Write { .. }));
    elector.handle_look(start + Duration::from_secs(20), of_a("2"));
    elector.handle_look(start + Duration::from_secs(29), of_a("2"));
    let Step::Write { record, version } = elector.poll(start + Duration::from_secs(29)) else { panic!() };
    assert_eq!((record.holder.as_str(), record.transitions, version.as_deref()), ("b", 4, Some("2")));
}

#[test]
fn a_pause_ends_the_term() {
    let start = Instant::now();
    let mut elector = Elector::new("a".into(), Timing::default());
    elector.handle_look(start, None);
    let Step::Write { record, version: None } = elector.poll(start) else { panic!() };
    // The answer took eleven seconds: the term counts from the question.
    let answered = start + Duration::from_secs(11);
    elector.handle_written(start, answered, Stored { record, version: "1".into() });
    assert!(elector.is_leader(answered));
    assert!(!elector.is_leader(start + Duration::from_secs(12)));
    // Resumed a minute later: no leader, and based on the old version the write would be refused.
    let resumed = start + Duration::from_secs(60);
    assert!(!elector.is_leader(resumed));
    elector.handle_conflict();
    assert_eq!(elector.poll(resumed), Step::Look);
    let other = Record { holder: "b".into(), duration: Duration::from_secs(15), transitions: 1 };
    elector.handle_look(resumed, Some(Stored { record: other, version: "9".into() }));
    assert!(!elector.is_leader(resumed) && elector.release(resumed).is_none());
}

#[tokio::test(start_paused = true)]
async fn of_many_that_begin_at_once_one_leads() {
    let server = Memory::default();
    let replicas: Vec<_> = (0..20).map(|n| start(&server, &format!("r{n}"))).collect();
    for _ in 0..200 {
        advance(Duration::from_millis(500)).await;
        tokio::task::yield_now().await;
        assert!(replicas.iter().filter(|replica| replica.told.borrow().is_leader()).count() <= 1);
    }
    assert_eq!(replicas.iter().filter(|replica| replica.told.borrow().is_leader()).count(), 1);
    // A hundred seconds: one renewal every five, no more.
    assert!(server.0.lock().unwrap().writes <= 22, "{}", server.0.lock().unwrap().writes);
}
