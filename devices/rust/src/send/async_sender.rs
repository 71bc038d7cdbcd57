//! Sends a device's reports beside an event loop: a thread waits for the disk, and the program's client for the network.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::send::sender::{Attempt, Request, Response, Sender, Transport, Way};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A request that the program's HTTP client posts: see [`Request`].
#[derive(Debug, Clone)]
pub struct Post {
    /// The whole address.
    pub url: String,
    /// The names and values of all headers but those of the body's length and the host.
    pub headers: Vec<(&'static str, String)>,
    /// The bytes to send.
    pub body: Vec<u8>,
}

/// The sender for programs with an event loop, for any runtime. No call and no future blocks.
///
/// It has one thread, which waits for the disk and for other processes that hold the store. The program's own client sends the
/// requests. A future may be dropped at any time: a report that is being made is stored, and a report whose answer is not settled
/// waits for the next attempt, with the same key.
///
/// ```
/// # use ldpstream_device::{AsyncSender, Post, Response, Result};
/// # use std::time::Duration;
/// # async fn sleep(_: Duration) {}
/// # async fn posted(_: Post) -> std::result::Result<Response, String> { Ok(Response::default()) }
/// # async fn program(sender: &AsyncSender) -> Result<()> {
/// sender.call(|device| device.answer(&[("mode", "bicycle".into())], None)).await?;
/// sender.run(posted, async |time| { sleep(time).await; true }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncSender {
    device: Arc<Device>,
    jobs: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce(&mut Sender<Arc<Device>>, &Bridge) + Send>;
type Answered = std::result::Result<Response, String>;

/// What the thread asks of the future, one thing at a time.
enum Asked {
    Post(Post),
    Pause(Duration),
    Done,
}

/// What the future tells the thread.
enum Told {
    Answered(Answered),
    GoOn(bool),
}

impl AsyncSender {
    /// Prepares the sending of a device's reports, and starts the thread. It ends with this object, after its present call.
    ///
    /// # Errors
    /// As for [`Sender::with`]; `Store` if the system gives no thread.
    pub fn new(device: Arc<Device>, way: Way, token: Option<&str>) -> Result<AsyncSender> {
        let bridge = Bridge::default();
        let mut sender = Sender::with(device.clone(), way, token, Box::new(bridge.clone()))?;
        let (jobs, given) = mpsc::channel::<Job>();
        let work = move || given.into_iter().for_each(|job| job(&mut sender, &bridge));
        let started = std::thread::Builder::new().name("ldpstream".into()).spawn(work);
        started.map_err(|error| Error::Store(format!("no thread for the sender: {error}")))?;
        Ok(AsyncSender { device, jobs })
    }

    /// Runs a call of the device on the sender's thread, such as [`Device::answer`]. It runs to its end, also without the future.
    pub async fn call<T: Send + 'static>(&self, run: impl FnOnce(&Device) -> T + Send + 'static) -> T {
        let device = self.device.clone();
        self.done(|_| std::future::ready(Err(String::new())), |_| std::future::ready(false), move |_, _| run(&device)).await
    }

    /// Sends the waiting reports once: see [`Sender::attempt`]. `post` is the program's HTTP client, with the duties of a
    /// [`Transport`].
    ///
    /// # Errors
    /// As for [`Device::waiting`].
    pub async fn attempt<P, A>(&self, post: P) -> Result<Attempt>
    where
        P: Fn(Post) -> A,
        A: Future<Output = Answered>,
    {
        self.done(post, |_| std::future::ready(false), |sender, _| sender.attempt()).await
    }

    /// Sends until no report waits, with the pauses that a gateway expects: see [`Sender::run`].
    ///
    /// # Errors
    /// As for [`Device::waiting`].
    pub async fn run<P, A, W, G>(&self, post: P, pause: W) -> Result<()>
    where
        P: Fn(Post) -> A,
        A: Future<Output = Answered>,
        W: FnMut(Duration) -> G,
        G: Future<Output = bool>,
    {
        self.done(post, pause, |sender, bridge| sender.run(|time| bridge.pause(time))).await
    }

    /// Gives the thread a job, and answers what the thread asks until the job is done.
    async fn done<T, P, A, W, G, R>(&self, post: P, mut pause: W, run: R) -> T
    where
        T: Send + 'static,
        P: Fn(Post) -> A,
        A: Future<Output = Answered>,
        W: FnMut(Duration) -> G,
        G: Future<Output = bool>,
        R: FnOnce(&mut Sender<Arc<Device>>, &Bridge) -> T + Send + 'static,
    {
        let line = Arc::new(Line::default());
        let (tell, told) = mpsc::channel();
        let (give, results) = mpsc::channel();
        let asking = line.clone();
        let job: Job = Box::new(move |sender, bridge| {
            *locked(&bridge.0) = Some(Talk { line: asking.clone(), told });
            let _ = give.send(catch_unwind(AssertUnwindSafe(|| run(sender, bridge)))); // an error: the future was dropped
            *locked(&bridge.0) = None;
            asking.put(Asked::Done);
        });
        self.jobs.send(job).unwrap_or_else(|_| unreachable!("the thread ends with this object"));
        loop {
            let answer = match line.next().await {
                Asked::Post(request) => Told::Answered(post(request).await),
                Asked::Pause(time) => Told::GoOn(pause(time).await),
                Asked::Done => break,
            };
            let _ = tell.send(answer); // the thread waits for it
        }
        results.recv().expect("the thread gave a result").unwrap_or_else(|panic| resume_unwind(panic))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line from the thread to one future, for one thing at a time.
#[derive(Default)]
struct Line(Mutex<(Option<Asked>, Option<Waker>)>);

impl Line {
    fn put(&self, asked: Asked) {
        let mut state = locked(&self.0);
        state.0 = Some(asked);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    fn next(&self) -> impl Future<Output = Asked> {
        poll_fn(|context| {
            let mut state = locked(&self.0);
            if let Some(asked) = state.0.take() {
                return Poll::Ready(asked);
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

/// The way between the thread and the future of the present job.
struct Talk {
    line: Arc<Line>,
    told: Receiver<Told>,
}

/// The transport of the thread's sender. After the future is dropped, nothing is sent.
#[derive(Clone, Default)]
struct Bridge(Arc<Mutex<Option<Talk>>>);

impl Bridge {
    fn ask(&self, asked: Asked) -> Option<Told> {
        let talk = locked(&self.0);
        let talk = talk.as_ref()?;
        talk.line.put(asked);
        talk.told.recv().ok()
    }

    fn pause(&self, time: Duration) -> bool {
        matches!(self.ask(Asked::Pause(time)), Some(Told::GoOn(true)))
    }
}

impl Transport for Bridge {
    fn post(&self, request: &Request<'_>) -> Answered {
        let headers = request.headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let post = Post { url: request.url.to_owned(), headers, body: request.body.to_vec() };
        match self.ask(Asked::Post(post)) {
            Some(Told::Answered(answered)) => answered,
            _ => Err("timeout".into()), // the future was dropped: this ends the attempt
        }
    }
}
