//! A TCP socket that can be asked, while its connection is busy with an answer, whether the client is
//! still there.
//!
//! hyper would find that out by reading during each request, for which it makes itself a new buffer each
//! time. It is told not to (`half_close`); only answers that last ask here.

use socket2::SockRef;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How long a client is left alone that sent something where nothing was to be said.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A socket with several owners: the connection that reads and writes, and answers that last.
#[derive(Clone, Debug)]
pub(crate) struct Socket(Arc<TcpStream>);

impl Socket {
    pub fn new(stream: TcpStream) -> Socket {
        Socket(Arc::new(stream))
    }

    /// Ends when the client has closed its side, or the connection broke.
    pub async fn closed(&self) {
        while let Ok(ready) = self.0.ready(Interest::READABLE).await {
            if ready.is_read_closed() {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            let mut read = Ok(0);
            // A read that leaves room has emptied the socket. To say so clears the readiness as of before
            // the read, and saves the read that would find nothing.
            let _ = self.0.try_io(Interest::READABLE, || {
                read = self.0.try_read_buf(buf);
                match read {
                    Ok(bytes) if bytes == 0 || bytes == room => Ok(()),
                    _ => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl Socket {
    /// Writes as soon as there is room.
    fn poll_written(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, || self.0.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, || self.0.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn pair() -> (std::net::TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, Socket::new(listener.accept().await.unwrap().0))
    }

    #[tokio::test]
    async fn what_comes_after_a_short_read_is_read_too() {
        let (mut client, mut socket) = pair().await;
        let mut buffer = [0; 64];
        for turn in 0..100_u8 {
            client.write_all(&[turn; 3]).unwrap();
            let mut got = vec![];
            while got.len() < 3 {
                let bytes = socket.read(&mut buffer).await.unwrap();
                got.extend_from_slice(&buffer[..bytes]);
            }
            assert_eq!(got, [turn; 3]);
        }
        socket.write_all(b"answer").await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    }

    #[tokio::test]
    async fn a_client_that_went_is_noticed_without_reading() {
        let (client, socket) = pair().await;
        let closed = socket.closed();
        tokio::pin!(closed);
        let waiting = tokio::time::timeout(Duration::from_millis(20), closed.as_mut()).await;
        assert!(waiting.is_err(), "the client is there");
        drop(client);
        closed.await;
    }
}
