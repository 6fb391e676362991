use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;

use super::*;

/// Makes a listener whose loop the test runs itself.
fn run(dir: &testkit::TempDir, change: impl FnOnce(&mut Options)) -> ListenerThread {
    run_after(dir, change, |_| {})
}

/// Makes a listener that starts to read datagrams only after `sent` has sent some.
fn run_after(
    dir: &testkit::TempDir,
    change: impl FnOnce(&mut Options),
    sent: impl FnOnce(&UdpSocket),
) -> ListenerThread {
    let path = dir.path().join("data");
    let engine = engine::Engine::open(vfs::Env::real(), &path, engine::Options::default()).unwrap();
    let mut options = Options::new(SocketAddr::from(([127, 0, 0, 1], 0)), "syslog");
    change(&mut options);
    let (tcp, udp) = crate::syslog::bind(options.listen).unwrap();
    let (woken, _) = UnixStream::pair().unwrap();
    let (counters, stopping) = (Arc::<Counters>::default(), Arc::<StopRequest>::default());
    let writer = Writer::new(engine, &options.table, counters.clone(), stopping.clone()).unwrap();
    sent(&udp);
    let datagrams = DatagramReceiver::start(udp, options.message_bytes_max, counters.clone()).unwrap();
    ListenerThread::new(options, tcp, datagrams, woken, writer, counters, stopping)
}

fn connect(run: &ListenerThread) -> TcpStream {
    TcpStream::connect(run.tcp.local_addr().unwrap()).unwrap()
}

/// Waits until the event has arrived on the listener's side.
fn wait_for(connection: &Connection, what: PollFlags) {
    while poll(&mut [PollFd::new(&connection.stream, what)], None).is_err() {}
}

/// The connection of a device that lost its power was kept for good.
#[test]
fn a_peer_that_is_quiet_is_asked_whether_it_is_there() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let mut run = run(&dir, |_| {});
    let _sender = connect(&run);
    run.accept(READS_MAX);
    let socket = SockRef::from(&run.connections[0].stream);
    assert!(socket.keepalive().unwrap());
    let times = [socket.tcp_keepalive_time(), socket.tcp_keepalive_interval()].map(Result::unwrap);
    assert_eq!(times.map(|time| time.as_secs()), [60, 15]);
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
}

/// A connection without keepalive was dropped with the bytes that it had sent.
#[test]
fn a_connection_without_keepalive_is_read() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut stream = TcpStream::from(OwnedFd::from(ours));
    prepare(&stream).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// The thread spun while there were no file descriptors.
#[test]
fn a_connection_that_cannot_be_taken_is_not_tried_without_end() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let mut run = run(&dir, |_| {});
    // The socket is readable, but no connection can be accepted from it.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"?", socket.local_addr().unwrap()).unwrap();
    run.tcp = TcpListener::from(OwnedFd::from(socket));
    while !run.wait().tcp {}
    let from = Instant::now();
    run.accept(READS_MAX);
    while !run.wait().tcp {}
    assert!(from.elapsed() >= ACCEPT_PAUSE, "{:?}", from.elapsed());
}

/// Connections in the backlog were ended with all bytes that they had sent.
#[test]
fn what_the_sockets_hold_at_the_stop_came_before_it() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let mut run = run(&dir, |options| options.connections_max = 2);
    let engine = run.writer.engine().clone();
    let mut senders: Vec<TcpStream> = (0..2).map(|_| connect(&run)).collect();
    run.accept(READS_MAX);
    senders.extend((0..20).map(|_| connect(&run)));
    for sender in &mut senders {
        sender.write_all(b"<13>1 - - - - - - whole\n<13>1 - - - - - - half").unwrap();
    }
    run.stopping.begin();
    let counters = run.counters.clone();
    run.run();
    assert_eq!(engine.root().table("main.syslog").unwrap().rows(), 2 * 22);
    let counted = [
        &counters.connections_gave_way,
        &counters.connections_refused,
        &counters.connections_open,
        &counters.lost,
    ];
    assert_eq!(counted.map(|counter| counter.load(Ordering::Relaxed)), [0; 4]);
}

/// The listener kept 768 of 5,000 datagrams sent at once, and counted none as lost.
#[cfg(target_os = "linux")]
#[test]
fn datagrams_that_the_kernel_dropped_are_counted_and_a_row_says_how_many() {
    const SENT: u64 = 1_000;
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let send = |socket: &UdpSocket| {
        // The buffer has room for few of them, and nobody reads.
        SockRef::from(socket).set_recv_buffer_size(4 << 10).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for n in 0..SENT {
            let text = format!("<13>1 - - - - - - {n}");
            sender.send_to(text.as_bytes(), socket.local_addr().unwrap()).unwrap();
        }
    };
    let run = run_after(&dir, |_| {}, send);
    let (engine, counters) = (run.writer.engine().clone(), run.counters.clone());
    run.stopping.begin();
    run.run();
    let kept = counters.messages.load(Ordering::Relaxed);
    let dropped = counters.datagrams_dropped.load(Ordering::Relaxed);
    assert!(kept > 0 && dropped > SENT / 2, "{kept} kept, {dropped} dropped");
    assert_eq!((kept + dropped, counters.lost.load(Ordering::Relaxed)), (SENT, 0));
    let root = engine.root();
    let table = root.table("main.syslog").unwrap();
    assert_eq!(table.rows(), kept + 1);
    let said = crate::syslog::tests::rows(&engine, &["app", "level", "message", "data"]);
    let of_us: Vec<_> = said.iter().filter(|row| row[0] == "polynya").collect();
    let expected = [
        "polynya".to_owned(),
        "warning".to_owned(),
        format!("{dropped} messages over UDP were lost: they came faster than they were read"),
        format!("{{\"polynya\":{{\"dropped\":{dropped}}}}}"),
    ];
    assert_eq!(of_us, [&expected.to_vec()]);
}

#[test]
fn more_than_is_read_at_once_is_read_to_its_end() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let mut run = run(&dir, |_| {});
    let engine = run.writer.engine().clone();
    run.buffer = vec![0; 1 << 10];
    let mut sender = connect(&run);
    run.accept(READS_MAX);
    let line = format!("<13>1 - - - - - - {}\n", "x".repeat(100));
    let lines = line.repeat(400);
    assert!(lines.len() > 2 * READS_MAX * run.buffer.len());
    sender.write_all(lines.as_bytes()).unwrap();
    while rustix::io::ioctl_fionread(&run.connections[0].stream).unwrap() < lines.len() as u64 {
        std::thread::yield_now();
    }
    run.stopping.begin();
    run.run();
    assert_eq!(engine.root().table("main.syslog").unwrap().rows(), 400);
}

#[test]
fn senders_that_do_not_stop_do_not_hold_up_the_stop() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let mut run = run(&dir, |_| {});
    let address = run.tcp.local_addr().unwrap();
    let first = connect(&run);
    run.accept(READS_MAX);
    let lines = "<13>1 - - - - - - x\n".repeat(1_000);
    let is_over = AtomicBool::new(false);
    let write_on =
        |mut stream: TcpStream, times: usize| (0..times).try_for_each(|_| stream.write_all(lines.as_bytes()));
    std::thread::scope(|scope| {
        // The sender writes until the listener ends the connection.
        scope.spawn(|| write_on(first, usize::MAX));
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed)
                && let Ok(stream) = TcpStream::connect(address)
            {
                let _ = write_on(stream, 10);
            }
        });
        run.stopping.begin();
        run.run();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_came_before_a_connection_gave_way_is_read_first() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let mut run = run(&dir, |options| {
        (options.connections_max, options.quiet_time_min) = (2, Duration::from_secs(3_600));
    });
    // Before its bytes are read, the talking connection looks like the one that was quiet for longest.
    let (mut speaks, _quiet) = (connect(&run), connect(&run));
    run.accept(READS_MAX);
    speaks.write_all(b"<13>1 - - - - - - said\n").unwrap();
    wait_for(&run.connections[0], PollFlags::IN);
    let mut third = connect(&run);
    run.accept(READS_MAX);
    let ports = |run: &ListenerThread| -> Vec<u16> {
        let peers = run.connections.iter().map(|connection| connection.stream.peer_addr().unwrap().port());
        peers.collect()
    };
    assert_eq!(ports(&run), [&speaks, &third].map(|stream| stream.local_addr().unwrap().port()));
    // The end of a connection is found here too, with the bytes sent before it.
    third.write_all(b"<13>1 - - - - - - last").unwrap();
    drop(third);
    wait_for(&run.connections[1], PollFlags::RDHUP);
    let fourth = connect(&run);
    run.accept(READS_MAX);
    assert_eq!(ports(&run), [&speaks, &fourth].map(|stream| stream.local_addr().unwrap().port()));
    run.flush();
    let counted =
        [&run.counters.messages, &run.counters.connections_gave_way, &run.counters.connections_open];
    assert_eq!(counted.map(|counter| counter.load(Ordering::Relaxed)), [2, 1, 2]);
}
