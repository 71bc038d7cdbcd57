//! The sender beside an event loop: nothing blocks, and a dropped future loses no report and counts none twice.

use ldpstream_device::{AsyncSender, ConsentMode, Device, Error, Options, Post, Response, Store, Survey, Way};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// An event loop of one thread: it polls the future at each wake-up, and returns after `most` polls without a result.
fn polled<T>(future: impl Future<Output = T>, most: usize) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    for _ in 0..most {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
        std::thread::park();
    }
    None
}

fn done<T>(future: impl Future<Output = T>) -> T {
    polled(future, usize::MAX).expect("a result")
}

fn survey() -> Survey {
    let folder = std::env::var("VECTORS").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors").into());
    let lives: serde_json::Value = serde_json::from_slice(&std::fs::read(format!("{folder}/devices.json")).unwrap()).unwrap();
    let life = lives.as_array().unwrap().iter().find(|life| life["survey"]["name"] == "rest").unwrap();
    Survey::from_json(life["survey"].to_string().as_bytes()).unwrap()
}

/// The sender of a device with reports of three steps, and their number.
fn sender(store: Store) -> (AsyncSender, usize) {
    let options = Options { consent: ConsentMode::Simulated, ..Options::default() };
    let device = Arc::new(Device::open(survey(), store, &options).unwrap());
    for step in 3..6 {
        device.report(&device.survey().attributes()[0].name, 0, Some(step)).unwrap().unwrap();
    }
    let waiting = device.waiting().unwrap().len();
    (AsyncSender::new(device, Way::Direct("http://gateway.example".into()), Some("a token")).unwrap(), waiting)
}

fn accepted() -> Result<Response, String> {
    Ok(Response { status: 202, body: b"{\"accepted\":1}".to_vec(), ..Response::default() })
}

fn header(post: &Post, wanted: &str) -> String {
    post.headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone()).expect("a header")
}

#[test]
fn every_report_is_sent_with_its_key_and_the_pauses_are_the_programs() {
    let (sender, waiting) = sender(Store::memory());
    let (seen, pauses) = (Mutex::new(BTreeMap::<String, Vec<Vec<u8>>>::new()), Mutex::new(0));
    let post = |post: Post| {
        assert_eq!(
            (post.url.as_str(), header(&post, "Authorization").as_str()),
            ("http://gateway.example/v1/reports", "Bearer a token")
        );
        let mut seen = seen.lock().unwrap();
        let bodies = seen.entry(header(&post, "Idempotency-Key")).or_default();
        bodies.push(post.body);
        ready(if bodies.len() < 3 {
            Ok(Response { status: 503, retry_after: Some("7".into()), ..Response::default() })
        } else {
            accepted()
        })
    };
    let pause = |time: Duration| {
        assert!(time >= Duration::from_secs(7));
        *pauses.lock().unwrap() += 1;
        ready(true)
    };
    done(sender.run(post, pause)).unwrap();
    let seen = seen.into_inner().unwrap();
    assert_eq!((seen.len(), *pauses.lock().unwrap()), (waiting, 2));
    assert!(seen.values().all(|bodies| bodies.len() == 3 && bodies.iter().all(|body| *body == bodies[0])));
    assert_eq!(done(sender.call(Device::waiting)).unwrap(), []);
}

#[test]
fn the_event_loop_runs_while_another_process_holds_the_store() {
    let path = std::env::temp_dir().join(format!("ldpstream-async-{}", std::process::id()));
    let (sender, waiting) = sender(Store::file(&path));
    let lock = std::fs::File::open(path.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let mut attempt = pin!(sender.attempt(|_| ready(accepted())));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(attempt.as_mut().poll(&mut context).is_pending()); // a poll that waited for the store would never return
    }
    drop(lock);
    assert_eq!(done(attempt).unwrap().accepted, waiting);
    for end in ["", ".lock"] {
        std::fs::remove_file(format!("{}{end}", path.display())).unwrap();
    }
}

#[test]
fn a_future_dropped_at_any_poll_loses_no_report_and_counts_none_twice() {
    for polls in 0..30 {
        let (sender, waiting) = sender(Store::memory());
        let (counted, answered) = (Mutex::new(BTreeSet::new()), Mutex::new(0));
        let post = |post: Post| {
            counted.lock().unwrap().insert((header(&post, "Idempotency-Key"), post.body)); // the request arrived
            let mut left = Some(accepted());
            let answered = &answered;
            std::future::poll_fn(move |context| {
                context.waker().wake_by_ref();
                match left.take() {
                    Some(answer) if *answered.lock().unwrap() > 0 => Poll::Ready(answer),
                    answer => {
                        *answered.lock().unwrap() += 1;
                        left = answer;
                        Poll::Pending
                    }
                }
            })
        };
        let finished = polled(sender.attempt(post), polls).is_some();
        *answered.lock().unwrap() = 1;
        let rest = done(sender.attempt(post)).unwrap();
        assert_eq!((counted.lock().unwrap().len(), rest.waiting), (waiting, 0), "{polls} polls");
        assert!(!finished || rest.accepted == 0);
        assert_eq!(done(sender.call(Device::waiting)).unwrap(), []);
    }
}

#[test]
fn a_call_runs_to_its_end_without_its_future() {
    let (sender, waiting) = sender(Store::memory());
    let report = |device: &Device| device.report(&device.survey().attributes()[0].name, 0, Some(6));
    assert!(polled(sender.call(report), 0).is_none()); // never polled: nothing begins
    assert_eq!(done(sender.call(Device::waiting)).unwrap().len(), waiting);
    let mut call = Box::pin(sender.call(report));
    let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(call);
    assert_eq!(done(sender.call(Device::waiting)).unwrap().len(), waiting + 1);
    let silent = polled(sender.attempt(|_| pending()), 1); // a client that never answers
    assert!(silent.is_none());
    assert_eq!(done(sender.call(Device::waiting)).unwrap().len(), waiting + 1);
}

#[test]
fn a_future_may_move_between_threads_and_a_panic_reaches_the_caller() {
    fn moves(_: impl Send) {}
    let (sender, _) = sender(Store::memory());
    moves(sender.run(async |_: Post| accepted(), async |_: Duration| true));
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| done(sender.call(|_| panic!("a fault")))));
    assert!(broken.is_err());
    assert!(matches!(done(sender.call(|device| device.report("nothing", 0, None))), Err(Error::Value(_))));
}
