//! A gRPC server on a Unix domain socket, for unary calls.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

/// Returns the response to a call, or the message of its error. May block.
pub type Answer = dyn Fn(&str, &[u8]) -> Result<Vec<u8>, String> + Send + Sync;

/// A running server. Dropping it stops it.
pub struct GrpcServer {
    socket: PathBuf,
    runtime: Option<Runtime>,
}

impl GrpcServer {
    /// Starts a server. `answer` gets the name of the call and its message. `@name` is a socket in
    /// the abstract namespace.
    ///
    /// # Panics
    ///
    /// If the socket cannot be opened.
    pub fn start(socket: &Path, answer: Arc<Answer>) -> GrpcServer {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
        let _entered = runtime.enter();
        let path = socket.to_str().expect("a path in UTF-8");
        let path = match path.strip_prefix('@') {
            Some(name) => format!("\0{name}"),
            None => path.to_owned(),
        };
        let listener = UnixListener::bind(path).expect("a socket");
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                let answers = service_fn(move |request| respond(answer.clone(), request));
                let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(http2.serve_connection(TokioIo::new(stream), answers));
            }
        });
        GrpcServer { socket: socket.to_owned(), runtime: Some(runtime) }
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

type Reply = Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>;

async fn respond(answer: Arc<Answer>, request: Request<Incoming>) -> Result<Reply, std::io::Error> {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    // The message stands behind a flag and its length.
    let answer =
        tokio::task::spawn_blocking(move || answer(&call, body.get(5..).unwrap_or_default()));
    let mut trailers = HeaderMap::new();
    let mut message = vec![];
    match answer.await.map_err(std::io::Error::other)? {
        Ok(encoded) => {
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            message.push(0);
            let length = u32::try_from(encoded.len()).map_err(std::io::Error::other)?;
            message.extend(length.to_be_bytes());
            message.extend(encoded);
        }
        Err(why) => {
            trailers.insert("grpc-status", HeaderValue::from_static("2"));
            let why = HeaderValue::from_str(&why).map_err(std::io::Error::other)?;
            trailers.insert("grpc-message", why);
        }
    }
    let body = Full::new(Bytes::from(message))
        .with_trailers(std::future::ready(Some(Ok(trailers))))
        .boxed();
    let mut response = Response::new(body);
    let media = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", media);
    Ok(response)
}
