//! Attacks on the program in the place of etcd, which is started on a free port with a data folder
//! of its own. Its administrator reads one key every 20 ms.

mod attacks;
mod connection;
mod messages;

pub use attacks::ATTACKS;

use crate::client::connect_tcp;
use crate::victim::{Administrator, Victim};
use anyhow::{Context, Result, ensure};
use connection::EtcdConnection;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the program may take to start.
const START_MAX: Duration = Duration::from_secs(20);
/// Keys that are stored before the attacks: few with long values, many with short ones.
const LONG_VALUES: usize = 200;
const LONG_VALUE_BYTES: usize = 100_000;
const SHORT_VALUES: usize = 10_000;
/// The key that the administrator reads, and its value.
const CANARY: &[u8] = b"canary";
const CANARY_VALUE: &[u8] = b"unchanged";

/// A running program.
pub struct EtcdTarget {
    pub address: SocketAddr,
    child: Child,
    _dir: tempfile::TempDir,
}

impl EtcdTarget {
    /// Starts the program and stores the keys.
    pub fn start(program: &Path) -> Result<EtcdTarget> {
        let dir = tempfile::tempdir()?;
        let program = program.canonicalize().context("--program")?;
        let etcd = dir.path().join("etcd");
        symlink(program, &etcd)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let url = format!("http://{address}");
        let child = Command::new(&etcd)
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--max-txn-ops=10000", "--log-level=error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start etcd")?;
        let target = EtcdTarget { address, child, _dir: dir };
        target.wait()?;
        target.store()?;
        Ok(target)
    }

    /// Waits until it is healthy.
    fn wait(&self) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        let is_healthy = || {
            let mut stream = connect_tcp(self.address).ok()?;
            write!(stream, "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.contains("\"health\":\"true\"").then_some(())
        };
        while is_healthy().is_none() {
            ensure!(Instant::now() < deadline, "etcd does not start");
            crate::pause(Duration::from_millis(5));
        }
        Ok(())
    }

    fn store(&self) -> Result<()> {
        let mut connection = EtcdConnection::open(self.address)?;
        let value = vec![b'v'; LONG_VALUE_BYTES];
        connection.put(CANARY, CANARY_VALUE)?;
        for number in 0..LONG_VALUES {
            connection.put(format!("long/{number}").as_bytes(), &value)?;
        }
        for start in (0..SHORT_VALUES).step_by(5000) {
            let puts = (start..start + 5000)
                .map(|number| messages::put_op(format!("short/{number}").as_bytes(), b"value"));
            connection.call(messages::TXN, &messages::txn(&[], puts, []))?;
        }
        Ok(())
    }
}

impl Victim for EtcdTarget {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn administrator(&self) -> Result<Box<dyn Administrator>> {
        Ok(Box::new(EtcdConnection::open(self.address)?))
    }

    fn check_canaries(&self) -> Result<()> {
        EtcdConnection::open(self.address)?.request()
    }
}

impl Administrator for EtcdConnection {
    fn request(&mut self) -> Result<()> {
        let response = self.call(messages::RANGE, &messages::get(CANARY))?;
        let has_value = response.windows(CANARY_VALUE.len()).any(|part| part == CANARY_VALUE);
        ensure!(has_value, "the key of the administrator: {response:?}");
        Ok(())
    }

    fn longest_poll(&mut self) -> Result<Option<Duration>> {
        Ok(None)
    }
}

impl Drop for EtcdTarget {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
