//! The server: its runtime, its socket, its connections and its shutdown.

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::Router;
use engine::Engine;
use engine::threads::Class;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use types::{Error, Kind, Result};

use crate::app::{App, Shared};
use crate::assets::Assets;
use crate::auth::Peer;
use crate::connection::{self, Connection, OpenGuard, Phase, Stream, Sweeper};
use crate::files;
use crate::http2;
use crate::live::{self, Sample};
use crate::log_throttle::LogThrottle;
use crate::options::Options;
use crate::record::{self, Recorder};
use crate::revocation;
use crate::routes;
use crate::routes::copy::Copies;
use crate::routes::iceberg::Catalog;
use crate::storm::Storm;
use crate::telemetry::{Close, Telemetry};
use crate::work_pool::WorkPool;

/// A running server. Dropping it stops it at once; [`Server::stop`] lets running answers finish first.
pub struct Server {
    app: Shared,
    local_addr: SocketAddr,
    runtime: Option<Runtime>,
}

impl Server {
    /// Binds the address, starts the threads and serves. Returns once connections are accepted.
    ///
    /// Fails with [`Kind::InUse`] if another program listens on the address. The caller closes the engine and SQL itself, after
    /// [`Server::stop`].
    pub fn start(engine: Engine, sql: query::Sql, mut options: Options) -> Result<Server> {
        limit_connections(&mut options);
        let runtime = runtime(&engine, &options)?;
        let listener = {
            let _inside = runtime.enter();
            bind(options.listen)?
        };
        let local_addr = listener.local_addr().map_err(|e| Error::io("asking for the address", e))?;
        let (recorder, notes) = Recorder::new(options.record_requests);
        let ask = ask::Ask::new(engine.clone(), sql.clone(), options.search.clone(), ask::Options::default());
        let app = Arc::new(App {
            ask,
            work: WorkPool::start(options.work_threads, options.work_queue_max)?,
            copies: Copies::new(&options),
            body_room: tokio::sync::Notify::new(),
            ahead: Arc::new(tokio::sync::Semaphore::new(crate::routes::AHEAD_MAX)),
            cursors: tokio::sync::Mutex::default(),
            erasures: Default::default(),
            catalog: options
                .catalog
                .clone()
                .map(|store| Catalog::start(engine.clone(), store))
                .transpose()?,
            lsn: watch::Sender::new(engine.root().lsn()),
            live: watch::Sender::new(Arc::new(Sample::default())),
            keys: watch::Sender::new(()),
            stopping: watch::Sender::new(false),
            telemetry: Telemetry::default(),
            assets: Assets::load(),
            storm: Storm::new(options.storm.clone()),
            started: Instant::now(),
            recorder,
            engine,
            sql,
            options,
        });
        let (opened, connections) = mpsc::unbounded_channel();
        runtime.spawn(sweep(app.clone(), connections));
        runtime.spawn(live::run(app.clone()));
        runtime.spawn(live::follow(app.clone()));
        runtime.spawn(revocation::watch(app.clone()));
        runtime.spawn(crate::routes::lake::maintain::run(app.clone()));
        if let Some(notes) = notes {
            runtime.spawn(record::run(app.clone(), notes));
        }
        runtime.spawn(accept(app.clone(), listener, opened));
        Ok(Server { app, local_addr, runtime: Some(runtime) })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns the counters of the server.
    pub fn telemetry(&self) -> &Telemetry {
        &self.app.telemetry
    }

    /// Returns the number of copies of files (COPY) that are running.
    pub fn copies_running(&self) -> usize {
        self.app.copies.running(&self.app.options)
    }

    /// Stops accepting, ends feeds, lets running answers finish until `deadline` has passed, then ends the threads. Returns the
    /// number of connections that were cut.
    pub fn stop(mut self, deadline: Duration) -> usize {
        self.end(deadline)
    }

    fn end(&mut self, deadline: Duration) -> usize {
        let Some(runtime) = self.runtime.take() else { return 0 };
        self.app.stopping.send_replace(true);
        self.app.storm.abandon();
        let until = Instant::now() + deadline;
        let open = &self.app.telemetry.connections_open;
        while open.load(Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let cut = open.load(Relaxed);
        runtime.shutdown_timeout(Duration::from_secs(1));
        cut
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// Lowers `connections_max` so that enough files are left to the rest of the program.
fn limit_connections(options: &mut Options) {
    let files = files::raise_limit();
    let possible = files::connections_within(files, options.connections_max);
    if possible < options.connections_max {
        const MESSAGE: &str =
            "fewer connections than configured: the process may not have as many files open (ulimit -n)";
        let wanted = options.connections_max;
        if is_configured(wanted) {
            tracing::info!(connections_max = possible, wanted, files, "{MESSAGE}")
        } else {
            tracing::debug!(connections_max = possible, wanted, files, "{MESSAGE}")
        }
        options.connections_max = possible;
    }
}

/// Returns true if somebody configured this number. A lowered default is not worth a line in the log.
fn is_configured(connections_max: usize) -> bool {
    connections_max != Options::default().connections_max
}

fn runtime(engine: &Engine, options: &Options) -> Result<Runtime> {
    thread_local!(static HEART: RefCell<Option<vfs::heartbeat::Heartbeat>> = const { RefCell::new(None) });
    let beat = |busy: bool| {
        HEART.with_borrow(|heart| match heart {
            Some(heart) if busy => heart.busy(),
            Some(heart) => heart.idle(),
            None => {}
        });
    };
    let clock = engine.env().clock.clone();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads.max(1))
        // No task here blocks on purpose, so tokio's pool for blocking work stays small.
        .max_blocking_threads(2)
        .thread_name("pn-http")
        .on_thread_start(move || {
            Class::Interactive.enter();
            HEART.set(Some(vfs::heartbeat::register(clock.clone(), "http", "interactive")));
            beat(true);
        })
        .on_thread_park(move || beat(false))
        .on_thread_unpark(move || beat(true))
        .on_thread_stop(|| HEART.set(None))
        .enable_all()
        .build()
        .map_err(|e| Error::io("starting the server's threads", e))
}

fn bind(address: SocketAddr) -> Result<TcpListener> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            Error::new(Kind::InUse, format!("another program listens on {address}"))
                .hint("stop it, or choose another address with --listen")
        }
        _ => Error::io(format!("listening on {address}"), e),
    };
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(failed)?;
    // A restart must not wait until the system has forgotten the connections of the last run.
    socket.set_reuseaddr(true).map_err(failed)?;
    socket.bind(address).map_err(failed)?;
    socket.listen(4_096).map_err(failed)
}

async fn accept(app: Shared, listener: TcpListener, opened: mpsc::UnboundedSender<Arc<Connection>>) {
    let router = routes::router(&app);
    let mut stopping = app.stopping.subscribe();
    let mut refusals = LogThrottle::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.changed() => return,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The usual cause is a lack of file descriptors, so a connection must close before the next one can be accepted.
                if let Some(times) = refusals.note(Instant::now()) {
                    tracing::warn!(%error, times, "connections could not be accepted");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        app.telemetry.connections_total.fetch_add(1, Relaxed);
        let open = OpenGuard::new(app.clone());
        if app.telemetry.connections_open.load(Relaxed) > app.options.connections_max {
            app.telemetry.closed(Close::TooMany);
            refuse(socket);
            continue;
        }
        // Answers are small. Without this, Nagle's algorithm would make them wait for an acknowledgement.
        let _ = socket.set_nodelay(true);
        let connection = Connection::new(Peer::new(peer, socket.local_addr().ok()));
        // The channel is unbounded, but the number of open connections is limited. Sending fails only when the server ends.
        let _ = opened.send(connection.clone());
        tokio::spawn(serve(app.clone(), router.clone(), socket, connection, open));
    }
}

/// Refuses a connection over the limit. The send buffer of a new socket has room for the answer, so it is written without
/// waiting.
fn refuse(socket: TcpStream) {
    const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
        x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\ncontent-length: 111\r\n\r\n\
        {\"error\":{\"code\":\"too_many_connections\",\"message\":\"too many connections are open\",\"hint\":\"reuse connections\"}}\n";
    if let Ok(mut socket) = socket.into_std() {
        // The error is ignored, because a client that is gone needs no answer.
        let _ = std::io::Write::write(&mut socket, ANSWER);
        let _ = socket.shutdown(std::net::Shutdown::Write);
    }
}

async fn serve(app: Shared, router: Router, socket: TcpStream, connection: Arc<Connection>, open: OpenGuard) {
    let mut stream = Stream::new(socket, open, connection.clone());
    let mut stopping = app.stopping.subscribe();
    if *stopping.borrow() {
        return;
    }
    let speaks_http2 = tokio::select! {
        speaks = stream.speaks_http2() => speaks,
        reason = connection.ended() => return app.telemetry.closed(reason),
        _ = stopping.changed() => return app.telemetry.closed(Close::Stop),
    };
    let io = TokioIo::new(stream);
    if speaks_http2 {
        connection.enter(Phase::Carrying);
        let service = {
            let app = app.clone();
            service_fn(move |request| {
                let (app, router) = (app.clone(), router.clone());
                // The stream is looked up inside the future, because that is where the task-local is set.
                async move { Ok::<_, Infallible>(routes::handle(app, router, http2::stream(), request).await) }
            })
        };
        let http = http2::builder(&app, &connection).serve_connection(io, service);
        drive(&app, &connection, http, |http| http.graceful_shutdown()).await;
    } else {
        let service = {
            let (app, connection) = (app.clone(), connection.clone());
            service_fn(move |request| {
                let (app, router, connection) = (app.clone(), router.clone(), connection.clone());
                async move { Ok::<_, Infallible>(routes::handle(app, router, connection, request).await) }
            })
        };
        let mut http = http1::Builder::new();
        // `Connection` watches the pace of clients, for all phases and without a timer for each connection.
        http.header_read_timeout(None)
            .keep_alive(true)
            .half_close(false)
            .max_headers(app.options.headers_max)
            .max_header_size(app.options.head_bytes_max)
            .max_buf_size(app.options.head_bytes_max.max(8 << 10));
        let http = http.serve_connection(io, service).with_upgrades();
        drive(&app, &connection, http, |http| http.graceful_shutdown()).await;
    }
    connection::linger(&connection).await;
}

/// Serves a connection until it ends by itself or the server ends it. `close` asks hyper to end it between answers.
async fn drive<C: Future<Output = hyper::Result<()>>>(
    app: &App,
    connection: &Connection,
    http: C,
    close: impl Fn(Pin<&mut C>),
) {
    let mut http = Box::pin(http);
    let mut ending = *app.stopping.borrow();
    if ending {
        close(http.as_mut());
    }
    loop {
        tokio::select! {
            result = http.as_mut() => {
                if let Err(error) = result
                    && (error.is_parse() || error.is_parse_too_large())
                {
                    app.telemetry.closed(Close::BadRequest);
                }
                break;
            }
            reason = connection.ended() => {
                if reason == Close::Stop {
                    if !ending {
                        app.telemetry.closed(reason);
                        ending = true;
                        close(http.as_mut());
                    }
                    continue;
                }
                // hyper closes an idle connection between answers. If the next sweep still finds it open, it is cut.
                if reason == Close::Idle && !ending {
                    app.telemetry.closed(reason);
                    ending = true;
                    close(http.as_mut());
                } else {
                    if reason != Close::Idle {
                        app.telemetry.closed(reason);
                    }
                    break;
                }
            }
        }
    }
}

/// Checks every connection once a second, or more often if the time limits are short.
async fn sweep(app: Shared, mut opened: mpsc::UnboundedReceiver<Arc<Connection>>) {
    let options = &app.options;
    let shortest =
        [options.head_time_max, options.answer_pause_max, options.answer_time_max, options.idle_time_max];
    let shortest = shortest.into_iter().min().unwrap_or_default();
    let pause = (shortest / 4).clamp(Duration::from_millis(20), Duration::from_secs(1));
    let mut sweeper = Sweeper::default();
    let mut stopping = app.stopping.subscribe();
    loop {
        let stops = tokio::select! {
            () = tokio::time::sleep(pause) => false,
            _ = stopping.changed() => true,
        };
        while let Ok(connection) = opened.try_recv() {
            sweeper.add(&connection);
        }
        if stops {
            // `serve` checks `stopping` itself for connections that are accepted from here on.
            return sweeper.stop();
        }
        sweeper.sweep(options);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_that_somebody_chose_is_spoken_of() {
        assert!(!is_configured(Options::default().connections_max));
        assert!(is_configured(15_000));
    }
}
