//! A network over HTTP: the page, its data, server-sent events, and figures for Prometheus.
//!
//! It only reads, on a thread of its own for which no round waits. It answers so many connections
//! at once, each for a bounded time. Without a token it answers only those that ask for this
//! machine by an address of it, so that a page elsewhere cannot read it through a browser.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use futures::stream;
use gradvine::{config::ConfigError, run::StatusFile, threads};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Frame, Incoming},
    header::{self, HeaderMap, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot, task::AbortHandle, time::timeout};

use super::{Shared, metrics, token::Token};

/// Connections at once: for one more, the oldest is closed. So clients that say nothing keep nobody
/// from the page, and a browser opens its stream again.
const CONNECTIONS: usize = 64;

/// How long a client has for the head of a request, and a connection in all. A browser opens the
/// stream of events again.
const HEAD: Duration = Duration::from_secs(5);
const CONNECTION: Duration = Duration::from_secs(600);

/// The longest head of a request, in bytes.
const LONGEST_HEAD: usize = 16 << 10;

/// How long a process that ends waits for the server.
const CLOSING: Duration = Duration::from_secs(1);

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The page's files: path, type, content.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", gradvine_page::INDEX),
    ("/page.js", "text/javascript; charset=utf-8", gradvine_page::SCRIPT),
    ("/page.css", "text/css; charset=utf-8", gradvine_page::STYLE),
    ("/uplot.js", "text/javascript; charset=utf-8", gradvine_page::UPLOT),
    ("/uplot.css", "text/css; charset=utf-8", gradvine_page::UPLOT_STYLE),
];

/// An address at which a page will be served, with its token.
pub struct Page {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    token: Option<Token>,
}

impl Page {
    /// Listens where a node file says, if it does. Nothing is answered before a
    /// [`Watcher`](super::Watcher) has it.
    ///
    /// # Errors
    /// If the address or the token is invalid, the address cannot be listened on, or others can
    /// reach it and the file names no token; `place` is `node.status.listen` or
    /// `node.status.token`.
    pub fn open(status: &StatusFile) -> Result<Option<Page>, ConfigError> {
        let token = status.token.as_deref().map(Token::load).transpose()?;
        let Some(text) = &status.listen else { return Ok(None) };
        let wrong = |problem: String| {
            ConfigError::new("node.status.listen", format!("\"{text}\""), problem)
        };
        let at: SocketAddr = text.parse().map_err(|_| {
            wrong("expected an IP address and a port, such as 127.0.0.1:9470".into())
        })?;
        if !at.ip().is_loopback() && token.is_none() {
            return Err(wrong(
                "other machines can reach it: name a file with a token in status.token, or \
                 listen on 127.0.0.1"
                    .into(),
            ));
        }
        let cannot = |error: io::Error| wrong(format!("cannot listen: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(cannot)?;
        let listener = runtime.block_on(TcpListener::bind(at)).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        Ok(Some(Page { runtime, listener, address, token }))
    }

    /// Where it listens, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A server on a thread of its own. Dropping it closes all connections.
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What all connections share.
struct Service {
    shared: Arc<Shared>,
    token: Option<Token>,
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

impl Server {
    /// Answers at the address of this page.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(page: Page, shared: Arc<Shared>) -> io::Result<Server> {
        let Page { runtime, listener, token, .. } = page;
        let service = Arc::new(Service { shared, token });
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = threads::spawn("gradvine-page", move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, service) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_timeout(CLOSING);
        })?;
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, service: Arc<Service>) {
    let mut all: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // This process may open no more files.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        all.retain(|connection| !connection.is_finished());
        if all.len() >= CONNECTIONS
            && let Some(oldest) = all.pop_front()
        {
            oldest.abort();
        }
        let service = Arc::clone(&service);
        let task = tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let service = Arc::clone(&service);
                async move { Ok::<_, Infallible>(service.answer(&request)) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(LONGEST_HEAD)
                .serve_connection(TokioIo::new(stream), answer);
            // Whatever a client does, it ends its own connection only.
            let _ = timeout(CONNECTION, connection).await;
        });
        all.push_back(task.abort_handle());
    }
}

impl Service {
    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let mut answer = self.respond(request);
        let fixed = [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        for (name, value) in fixed {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    fn respond(&self, request: &Request<Incoming>) -> Answer {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
        }
        if let Err(problem) = self.check_host(request.headers()) {
            return refuse(StatusCode::FORBIDDEN, problem);
        }
        let path = request.uri().path();
        match path {
            "/healthz" => return plain(StatusCode::OK, "alive\n".into()),
            "/readyz" => return self.ready(),
            _ => {}
        }
        // They have nothing of the run.
        if let Some((_, kind, text)) = FILES.iter().find(|(name, ..)| *name == path) {
            return body(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()));
        }
        let query = request.uri().query().unwrap_or_default();
        if !self.may_read(request.headers(), query) {
            let text = "this page needs its token: add ?token=... to the address, or send \
                        Authorization: Bearer ...\n";
            return refuse(StatusCode::UNAUTHORIZED, text);
        }
        match path {
            "/status.json" => json(self.shared.json(0).0),
            "/curves.json" => {
                let curves = serde_json::to_string(&self.shared.lock().curves);
                json(curves.unwrap_or_default())
            }
            "/metrics" => {
                let accept = request.headers().get(header::ACCEPT);
                let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
                let (kind, text) = metrics::text(&self.shared.lock().network, accept);
                body(StatusCode::OK, kind, text.into())
            }
            "/events" => self.events(),
            _ => refuse(StatusCode::NOT_FOUND, "there is no such page\n"),
        }
    }

    /// Whether the client has asked for this server, and no page elsewhere has asked it to.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str());
        let Some(Ok(host)) = text(header::HOST) else {
            return Err("the request names no host\n");
        };
        if let Some(origin) = text(header::ORIGIN)
            && origin.ok().and_then(|origin| origin.split_once("://")).map(|(_, at)| at)
                != Some(host)
        {
            return Err("a page elsewhere may not read this one\n");
        }
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_own = name.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback());
        // With a token, a name that leads here by a trick reads nothing.
        match is_own || self.token.is_some() {
            true => Ok(()),
            false => Err("ask for it by its address, such as 127.0.0.1\n"),
        }
    }

    fn may_read(&self, headers: &HeaderMap, query: &str) -> bool {
        let Some(token) = &self.token else { return true };
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = header.and_then(|value| value.strip_prefix("Bearer "));
        let mut asked = query.split('&').filter_map(|part| part.strip_prefix("token="));
        bearer.is_some_and(|given| token.is(given)) || asked.any(|given| token.is(given))
    }

    /// Whether the node takes part in its run, or has ended it well.
    fn ready(&self) -> Answer {
        let view = self.shared.lock();
        let network = &view.network;
        let own = network.nodes.iter().find(|node| node.name == network.node);
        let state = own.map_or("unknown", |node| node.state.as_str());
        let is_ready = matches!(state, "computing" | "waiting" | "sending" | "finishing" | "done");
        let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        plain(code, format!("{state}\n"))
    }

    /// Once a second the whole network, with the events since the last time. A client that reads
    /// slowly misses some.
    fn events(&self) -> Answer {
        let shared = Arc::clone(&self.shared);
        let looks = shared.looks.subscribe();
        let since = shared.lock().events.next();
        let stream = stream::unfold((shared, looks, since), async |(shared, mut looks, since)| {
            looks.changed().await.ok()?;
            let (json, next) = shared.json(since);
            let text = format!("event: status\ndata: {json}\n\n");
            Some((Ok(Frame::data(Bytes::from(text))), (shared, looks, next)))
        });
        let mut answer = Response::new(BodyExt::boxed(StreamBody::new(stream)));
        let kind = HeaderValue::from_static("text/event-stream");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    }
}

fn body(code: StatusCode, kind: &str, bytes: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(bytes).boxed());
    *answer.status_mut() = code;
    if let Ok(kind) = HeaderValue::from_str(kind) {
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    answer
}

fn json(text: String) -> Answer {
    body(StatusCode::OK, "application/json", text.into())
}

fn plain(code: StatusCode, text: String) -> Answer {
    body(code, "text/plain; charset=utf-8", text.into())
}

fn refuse(code: StatusCode, problem: &'static str) -> Answer {
    plain(code, problem.into())
}
