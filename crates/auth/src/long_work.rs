//! Evaluating and compiling expressions without blocking the threads that serve other requests.
//!
//! What is brief runs at once, on the caller's thread. What turns out to take longer is given up,
//! and begun again on another thread: a few run at once, users take turns, and no user has all
//! threads. It ends soon after its request, by a deadline or because the client is gone.

use keelson_meta::status::Details;
use keelson_meta::{Failure, Reason, Status, Str};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::oneshot;

/// Most work that is done on the caller's thread, in units of about a nanosecond.
const BRIEF_WORK_MAX: u64 = 2_000_000;

/// Most works of one user that wait for a thread. Further ones get 429.
const USER_WAITING_MAX: usize = 32;

/// Most works of all users that wait for a thread.
const WAITING_MAX: usize = 512;

/// Does work that may evaluate and compile expressions, on behalf of a user. `brief` and what
/// `whole` returns do the same; the latter owns what it needs.
pub async fn run<T: Send + 'static, W: FnOnce() -> T + Send + 'static>(
    user: &Str,
    brief: impl FnOnce() -> T,
    whole: impl FnOnce() -> W,
) -> Result<T, Failure> {
    match keelson_cel::run_briefly(BRIEF_WORK_MAX, brief) {
        Some(done) => Ok(done),
        None => Box::pin(Threads::shared().run(user.clone(), whole())).await,
    }
}

/// Does work that is known to take long, on another thread.
pub async fn run_elsewhere<T: Send + 'static>(
    user: &Str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    Threads::shared().run(user.clone(), work).await
}

/// The threads for long work.
#[derive(Debug)]
struct Threads {
    /// Most works that run at once, and most of one user.
    most: usize,
    user_most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The users of the works that run.
    running: Vec<Str>,
    /// Waiting works by user; the user whose turn it is comes first.
    waiting: VecDeque<(Str, VecDeque<oneshot::Sender<Turn>>)>,
}

/// The right to use a thread, until it is dropped.
#[derive(Debug)]
struct Turn {
    threads: Arc<Threads>,
    user: Str,
}

/// Ends work whose request has ended.
struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Threads {
    fn new(most: usize) -> Arc<Threads> {
        let user_most = (most / 2).max(1);
        Arc::new(Threads { most, user_most, state: Mutex::default() })
    }

    /// Returns the threads of this process, which all servers in it share.
    fn shared() -> &'static Arc<Threads> {
        static SHARED: OnceLock<Arc<Threads>> = OnceLock::new();
        SHARED.get_or_init(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            Threads::new((processors / 2).max(2))
        })
    }

    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        user: Str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let turn = self.turn(user).await?;
        let flag = Arc::new(AtomicBool::new(false));
        let end = EndOnDrop(flag.clone());
        let done = tokio::task::spawn_blocking(move || {
            // The thread is in use until the work has ended, whoever waits for it.
            let _turn = turn;
            keelson_cel::run_until(&flag, work)
        });
        let done = match done.await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The server is shutting down.
            Err(_) => None,
        };
        drop(end);
        done.ok_or_else(|| Status::new(Reason::ServiceUnavailable, "the server is shutting down"))
    }

    /// Waits for a thread.
    async fn turn(self: &Arc<Self>, user: Str) -> Result<Turn, Failure> {
        let receiver = {
            let mut state = self.lock();
            if self.may_run(&state, &user) {
                state.running.push(user.clone());
                return Ok(Turn { threads: self.clone(), user });
            }
            state.wait(user)?
        };
        receiver.await.map_err(Status::internal)
    }

    fn may_run(&self, state: &State, user: &Str) -> bool {
        let of_user = state.running.iter().filter(|other| *other == user).count();
        state.running.len() < self.most && of_user < self.user_most
    }

    /// Gives free threads to those who wait, one user after the other.
    fn give_turns(self: &Arc<Self>) {
        // A turn that nobody takes is dropped after the lock is released.
        let mut refused = vec![];
        let mut state = self.lock();
        while let Some(at) =
            (0..state.waiting.len()).find(|at| self.may_run(&state, &state.waiting[*at].0))
        {
            let Some((user, mut works)) = state.waiting.remove(at) else { break };
            let Some(sender) = works.pop_front() else { continue };
            if !works.is_empty() {
                state.waiting.push_back((user.clone(), works));
            }
            if sender.is_closed() {
                continue;
            }
            state.running.push(user.clone());
            if let Err(turn) = sender.send(Turn { threads: self.clone(), user }) {
                refused.push(turn);
                break;
            }
        }
        drop(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, user: Str) -> Result<oneshot::Receiver<Turn>, Failure> {
        let (sender, receiver) = oneshot::channel();
        let number: usize = self.waiting.iter().map(|(_, works)| works.len()).sum();
        let own = self.waiting.iter_mut().find(|(other, _)| *other == user);
        if let Some((_, works)) = own {
            works.retain(|work| !work.is_closed());
            if works.len() >= USER_WAITING_MAX || number >= WAITING_MAX {
                return Err(too_many());
            }
            works.push_back(sender);
            return Ok(receiver);
        }
        if number >= WAITING_MAX {
            return Err(too_many());
        }
        self.waiting.push_back((user, VecDeque::from([sender])));
        Ok(receiver)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.threads.lock();
        if let Some(own) = state.running.iter().position(|user| *user == self.user) {
            state.running.swap_remove(own);
        }
        drop(state);
        self.threads.give_turns();
    }
}

/// Returns 429 with the message of kube-apiserver's limit of requests in flight.
fn too_many() -> Failure {
    let why = "Too many requests, please try again later.";
    let mut status = Status::new(Reason::TooManyRequests, why);
    status.details = Some(Details { retry_after_seconds: 1, ..Details::default() });
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_cel::{Environment, Limits, Version};
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::time::timeout;

    const DEADLINE: Duration = Duration::from_secs(60);

    /// Evaluates an expression; true if that was not ended.
    fn evaluate(text: &str) -> bool {
        let compiled = Environment::kubernetes(Version::STORED_EXPRESSIONS).compile(text);
        let limits = Limits { cost_max: u64::MAX };
        compiled.is_ok_and(|compiled| compiled.program.evaluate(&[], &limits).result.is_ok())
    }

    const BRIEF: &str = "[1, 2].all(i, i > 0)";
    const LONG: &str = "lists.range(50000).all(i, i >= 0)";
    /// Takes minutes if nobody ends it, but for the limit of work.
    const ENDLESS: &str = "lists.range(10000).all(i, lists.range(10000).all(j, i + j >= 0 || '%d'.format([i]) == ''))";

    #[tokio::test]
    async fn brief_work_stays_on_the_thread_of_the_caller() {
        let user = Str::from("a");
        let own = std::thread::current().id();
        let work = |text: &'static str| {
            move || {
                evaluate(text);
                std::thread::current().id()
            }
        };
        let brief = run(&user, work(BRIEF), || work(BRIEF)).await.expect("it ends");
        assert_eq!(brief, own);
        let long = run(&user, work(LONG), || work(LONG)).await.expect("it ends");
        assert_ne!(long, own);
        let done = run(&user, || evaluate(LONG), || || evaluate(LONG)).await;
        assert_eq!(done.ok(), Some(true));
    }

    #[tokio::test]
    async fn long_work_ends_with_its_request() {
        let threads = Threads::new(1);
        let (sender, receiver) = mpsc::channel();
        let (start_sender, mut start) = tokio::sync::mpsc::unbounded_channel();
        let work = move || {
            start_sender.send(()).expect("the test waits");
            sender.send(evaluate(ENDLESS)).expect("the test waits");
        };
        {
            let running = threads.run("a".into(), work);
            tokio::pin!(running);
            tokio::select! {
                _ = &mut running => panic!("it is endless"),
                started = start.recv() => assert_eq!(started, Some(())),
            }
        }
        assert_eq!(receiver.recv_timeout(DEADLINE), Ok(false));
        // The thread is free again.
        let next = timeout(DEADLINE, threads.run("b".into(), || 7)).await;
        assert_eq!(next.expect("a turn").ok(), Some(7));
    }

    #[tokio::test]
    async fn no_user_has_all_threads() {
        let threads = Threads::new(2);
        let first = threads.turn("a".into()).await.expect("a turn");
        let mut second = Box::pin(threads.turn("a".into()));
        assert!(timeout(Duration::ZERO, second.as_mut()).await.is_err());
        let other = timeout(DEADLINE, threads.turn("b".into())).await.expect("a turn");
        drop(first);
        timeout(DEADLINE, second).await.expect("its turn").expect("a turn");
        drop(other);
        assert!(threads.lock().running.is_empty());
    }

    #[tokio::test]
    async fn users_take_turns() {
        let threads = Threads::new(1);
        let first = threads.turn("a".into()).await.expect("a turn");
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = vec![];
        for user in ["a", "a", "a", "b", "c"] {
            let mut turn = Box::pin({
                let threads = threads.clone();
                async move { threads.turn(user.into()).await }
            });
            assert!(timeout(Duration::ZERO, turn.as_mut()).await.is_err());
            let sender = sender.clone();
            tasks.push(tokio::spawn(async move {
                let _turn = turn.await.expect("a turn");
                sender.send(user).expect("the test waits");
            }));
        }
        drop(first);
        let mut order = vec![];
        for _ in 0..5 {
            order.push(timeout(DEADLINE, receiver.recv()).await.expect("a turn").expect("a user"));
        }
        assert_eq!(order, ["a", "b", "c", "a", "a"]);
        for task in tasks {
            task.await.expect("no panic");
        }
    }

    #[tokio::test]
    async fn waiting_works_have_a_maximum_for_each_user() {
        let threads = Threads::new(1);
        let _first = threads.turn("a".into()).await.expect("a turn");
        let mut waiting = vec![];
        for _ in 0..USER_WAITING_MAX {
            let mut turn = Box::pin(threads.turn("a".into()));
            assert!(timeout(Duration::ZERO, turn.as_mut()).await.is_err());
            waiting.push(turn);
        }
        assert_eq!(threads.turn("a".into()).await.expect_err("too many").code, 429);
        let mut other = Box::pin(threads.turn("b".into()));
        assert!(timeout(Duration::ZERO, other.as_mut()).await.is_err());
        // Those whose request has ended no longer wait.
        waiting.pop();
        let mut next = Box::pin(threads.turn("a".into()));
        assert!(timeout(Duration::ZERO, next.as_mut()).await.is_err());
    }

    #[tokio::test]
    #[should_panic(expected = "a fault")]
    async fn a_panic_reaches_the_request() {
        let _: Result<(), Failure> = Threads::new(1).run("a".into(), || panic!("a fault")).await;
    }
}
