//! The listener on a real machine: sockets in, rows in the table.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{Engine, Op, Transaction};
use socket2::SockRef;
use types::{DataType, Kind, Principal, TableDef, TableId, Value};

use super::{Listener, Options};

const TABLE: &str = "syslog";

fn options() -> Options {
    Options::new(SocketAddr::from(([127, 0, 0, 1], 0)), TABLE)
}

fn open(dir: &testkit::TempDir) -> Engine {
    Engine::open(vfs::Env::real(), &dir.path().join("data"), engine::Options::default()).unwrap()
}

/// Returns the rows as the texts of some columns.
pub(super) fn rows(engine: &Engine, columns: &[&str]) -> Vec<Vec<String>> {
    let root = engine.root();
    let Some(table) = root.table("main.syslog") else { return Vec::new() };
    let mut rows = Vec::new();
    for piece in table.pieces() {
        let batch = piece.read(table.all_columns()).unwrap();
        for row in 0..batch.num_rows() {
            let text = |name: &&str| {
                let column = table.def().schema.column_named(name).unwrap();
                match Value::from_array(batch.column_by_name(name).unwrap(), &column.data_type, row) {
                    Value::String(text) | Value::Json(text) => text,
                    Value::Null => "-".to_owned(),
                    other => format!("{other:?}"),
                }
            };
            rows.push(columns.iter().map(text).collect());
        }
    }
    rows
}

fn wait_for(engine: &Engine, count: u64) {
    wait_for_rows(engine, "main.syslog", count);
}

fn wait_for_rows(engine: &Engine, table: &str, count: u64) {
    let is_there = || engine.root().table(table).is_some_and(|table| table.rows() >= count);
    while !is_there() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn messages_of_both_forms_come_in_over_tcp_and_udp() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let listener = Listener::start(engine.clone(), options()).unwrap();
    assert!(engine.root().table("main.syslog").is_none(), "nothing came, so nothing is made");
    let address = listener.local_addr();

    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"<13>1 2026-01-02T03:04:05Z web nginx 7 - - GET /\n").unwrap();
    stream.write_all(b"29 <11>Jan  2 03:04:05 web su: x").unwrap();
    wait_for(&engine, 1);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for text in ["<14>1 - db psql - - [a@1 b=\"c\"] vacuum\n", "neither form"] {
        socket.send_to(text.as_bytes(), address).unwrap();
    }
    // The message has a length, and the connection ends before its last byte.
    drop(stream);
    wait_for(&engine, 4);
    let mut found = rows(&engine, &["level", "host", "app", "message", "data", "peer"]);
    found.sort();
    let row = |cells: [&str; 6]| cells.map(str::to_owned).to_vec();
    assert_eq!(
        found,
        [
            row(["-", "-", "-", "neither form", "-", "127.0.0.1"]),
            row(["err", "web", "su", "x", "-", "127.0.0.1"]),
            row(["info", "db", "psql", "vacuum", r#"{"a@1":{"b":"c"}}"#, "127.0.0.1"]),
            row(["notice", "web", "nginx", "GET /", "-", "127.0.0.1"]),
        ]
    );
    let counters = listener.counters();
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    // Messages are counted only after they are in the table.
    while count(&counters.messages) < 4 {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((count(&counters.messages), count(&counters.unparsed)), (4, 1));
    listener.stop();
    assert_eq!(count(&counters.connections_open), 0);
    assert_eq!(count(&counters.lost), 0);
}

#[test]
fn many_connections_lose_nothing_and_keep_their_order() {
    let _limit = testkit::limit(120);
    const SENDERS: usize = 8;
    const MESSAGES: usize = 3_000;
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let listener = Listener::start(engine.clone(), options()).unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                for n in 0..MESSAGES {
                    writeln!(stream, "<13>1 - h s{sender} - - - {n}").unwrap();
                }
            });
        }
    });
    // The stop takes in what the sockets still hold.
    listener.stop();
    let found = rows(&engine, &["app", "message"]);
    assert_eq!(found.len(), SENDERS * MESSAGES);
    for sender in 0..SENDERS {
        let of_sender = found.iter().filter(|row| row[0] == format!("s{sender}"));
        assert!(of_sender.map(|row| row[1].parse::<usize>().unwrap()).eq(0..MESSAGES), "sender {sender}");
    }
}

/// The listener kept 768 of 5,000 datagrams sent at once, and counted none of the others.
#[test]
fn five_thousand_datagrams_at_once_are_kept_or_counted_as_lost() {
    const SENT: u64 = 5_000;
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let listener = Listener::start(engine.clone(), options()).unwrap();
    let (counters, address) = (listener.counters(), listener.local_addr());
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..SENT {
        sender.send_to(format!("<13>1 - h a - - - message {n}").as_bytes(), address).unwrap();
    }
    listener.stop();
    let kept = counters.messages.load(Ordering::Relaxed);
    let dropped = counters.datagrams_dropped.load(Ordering::Relaxed);
    let of_sender = rows(&engine, &["app"]).iter().filter(|row| row[0] == "a").count() as u64;
    assert_eq!((kept, counters.lost.load(Ordering::Relaxed)), (of_sender, 0));
    if cfg!(target_os = "linux") {
        assert_eq!(kept + dropped, SENT, "{kept} kept, {dropped} dropped");
    }
    // A kernel that grants the requested buffer drops none of so few datagrams.
    let like_it = UdpSocket::bind("127.0.0.1:0").unwrap();
    super::socket::grow(&like_it);
    let holds_all = SockRef::from(&like_it).recv_buffer_size().unwrap() >= 2 * super::socket::RECEIVE_BYTES;
    assert!(kept >= if holds_all { SENT } else { 2_000 }, "{kept} kept, {dropped} dropped");
}

#[test]
fn what_is_too_long_is_cut_and_the_rest_goes_on() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let limits = Options { message_bytes_max: 100, ..options() };
    let listener = Listener::start(engine.clone(), limits).unwrap();
    let address = listener.local_addr();
    let mut held: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    writeln!(held[0], "<13>1 - - - - - - {}", "x".repeat(1000)).unwrap();
    writeln!(held[0], "<13>1 - - - - - - short").unwrap();
    wait_for(&engine, 2);
    writeln!(held[1], "<13>1 - - - - - - other").unwrap();
    wait_for(&engine, 3);
    let messages: Vec<String> = rows(&engine, &["message"]).into_iter().flatten().collect();
    assert_eq!(messages, [&"x".repeat(82), "short", "other"]);
    assert_eq!(listener.counters().cut.load(Ordering::Relaxed), 1);
}

#[test]
fn a_message_that_the_stop_breaks_off_is_kept_and_counted_as_cut() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let listener = Listener::start(engine.clone(), options()).unwrap();
    let address = listener.local_addr();
    let mut broken_off = TcpStream::connect(address).unwrap();
    write!(broken_off, "<13>1 - - - - - - first\n<13>1 - - - - - - sec").unwrap();
    let mut ended = TcpStream::connect(address).unwrap();
    write!(ended, "<13>1 - - - - - - whole").unwrap();
    drop(ended);
    let counters = listener.counters();
    listener.stop();
    let mut messages: Vec<String> = rows(&engine, &["message"]).into_iter().flatten().collect();
    messages.sort();
    assert_eq!(messages, ["first", "sec", "whole"]);
    assert_eq!(counters.cut.load(Ordering::Relaxed), 1);
}

/// Returns true if the listener closed the connection. It had read everything sent, so the stream ends without a
/// reset.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    matches!(stream.read(&mut [0]), Ok(0))
}

/// Connections of devices that were gone filled all slots, and every later sender was refused for good.
#[test]
fn the_connection_that_was_quiet_for_the_longest_gives_way_to_a_new_one() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let limits = Options { connections_max: 3, quiet_time_min: Duration::ZERO, ..options() };
    let listener = Listener::start(engine.clone(), limits).unwrap();
    let connect = || TcpStream::connect(listener.local_addr()).unwrap();
    let mut held = [connect(), connect(), connect()];
    // The order differs from that in which the connections were made.
    for (count, at) in [1, 2, 0].into_iter().enumerate() {
        let text = format!("<13>1 - - - - - - whole {at}\n<13>1 - - - - - - half {at}");
        held[at].write_all(text.as_bytes()).unwrap();
        wait_for(&engine, count as u64 + 1);
    }
    writeln!(connect(), "<13>1 - - - - - - next").unwrap();
    // The incomplete last message is kept, as at any end of a connection.
    wait_for(&engine, 5);
    assert!(is_closed(&mut held[1]));
    for at in [0, 2] {
        writeln!(held[at], " and the rest").unwrap();
    }
    wait_for(&engine, 7);
    let counters = listener.counters();
    listener.stop();
    let mut messages: Vec<String> = rows(&engine, &["message"]).into_iter().flatten().collect();
    messages.sort();
    let halves = ["half 0 and the rest", "half 1", "half 2 and the rest", "next"];
    assert_eq!(messages, [&halves[..], &["whole 0", "whole 1", "whole 2"]].concat());
    let counted = [&counters.connections_gave_way, &counters.connections_refused];
    assert_eq!(counted.map(|counter| counter.load(Ordering::Relaxed)), [1, 0]);
}

#[test]
fn idle_connections_keep_no_place_and_busy_ones_do() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let limits = Options { connections_max: 4, quiet_time_min: Duration::from_secs(3_600), ..options() };
    let listener = Listener::start(engine.clone(), limits).unwrap();
    let (counters, address) = (listener.counters(), listener.local_addr());
    let connect = || TcpStream::connect(address).unwrap();
    let say = |stream: &mut TcpStream, count| {
        writeln!(stream, "<13>1 - - - - - - {count}").unwrap();
        wait_for(&engine, count);
    };
    let mut busy = vec![connect()];
    say(&mut busy[0], 1);
    let mut idle = [connect(), connect(), connect()];
    for (count, idle) in (2..).zip(&mut idle) {
        busy.push(connect());
        say(busy.last_mut().unwrap(), count);
        assert!(is_closed(idle), "the one that came before the others goes before them");
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&counters.connections_gave_way), count(&counters.connections_refused)), (3, 0));
    assert!(!counters.refusing.load(Ordering::Relaxed));
    // All slots are taken by connections that sent something.
    assert!(is_closed(&mut connect()));
    assert_eq!((count(&counters.connections_gave_way), count(&counters.connections_refused)), (3, 1));
    assert!(counters.refusing.load(Ordering::Relaxed));
    for (count, busy) in (5..).zip(&mut busy) {
        say(busy, count);
    }
    drop(busy.pop());
    while counters.refusing.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(2));
    }
    say(&mut connect(), 9);
}

#[test]
fn a_table_that_cannot_take_messages_is_told_of_at_the_start_and_a_port_in_use_too() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let listener = Listener::start(engine.clone(), options()).unwrap();
    let taken = Options::new(listener.local_addr(), TABLE);
    assert_eq!(Listener::start(engine.clone(), taken).err().unwrap().kind(), Kind::InUse);
    listener.stop();

    let make = |name: &str, column: &str, data_type: DataType| {
        let mut def = TableDef::new(TableId(0), format!("main.{name}"));
        def.add_column(column, &data_type, true, None).unwrap();
        let op = Op::CreateTable { def, if_absent: false };
        engine.commit(&Principal::local(), Transaction::new(vec![op])).unwrap();
    };
    make("numbers", "message", DataType::Int64);
    let error =
        Listener::start(engine.clone(), Options { table: "numbers".into(), ..options() }).err().unwrap();
    assert_eq!(error.kind(), Kind::Schema);
    assert!(error.message().contains("message"), "{error}");
    // A table with columns of its own gains those of messages.
    make("syslog", "note", DataType::String);
    let listener = Listener::start(engine.clone(), options()).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    writeln!(stream, "<13>1 - - - - - - x").unwrap();
    wait_for(&engine, 1);
    assert_eq!(rows(&engine, &["note", "message"]), [["-", "x"]]);
}

/// One such message blocked all later ones for good.
#[test]
fn a_message_that_its_table_does_not_take_holds_up_nobody() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("syslog");
    let engine = open(&dir);
    let listener = Listener::start(engine.clone(), options()).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    writeln!(stream, "<13>1 0000-01-01T00:00:00Z host app - - - early").unwrap();
    writeln!(stream, "<13>1 9999-12-31T23:59:59.999999-12:00 host app - - - late").unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.send_to(b"<13>1 0000-01-01T00:00:00Z host app - - - packed", listener.local_addr()).unwrap();
    wait_for(&engine, 3);
    let mut found = rows(&engine, &["time", "message"]);
    found.sort();
    assert_eq!(found, [["-", "early"], ["-", "late"], ["-", "packed"]]);

    let alter = |op: Op| engine.commit(&Principal::local(), Transaction::new(vec![op])).unwrap();
    let changes = vec![types::AlterAction::SetNotNull { name: "host".into() }];
    alter(Op::AlterTable { table: "main.syslog".into(), changes });
    write!(stream, "<13>1 - h - - - - one\n<13>1 - - - - - - bare\n<13>1 - h - - - - two\n").unwrap();
    wait_for(&engine, 5);
    let dead = || engine.root().table("main.syslog_dead").map_or(0, |table| table.rows());
    wait_for_rows(&engine, "main.syslog_dead", 1);
    // The dead-letter table was made for something else and takes none of them, and still nothing is blocked.
    alter(Op::AlterTable {
        table: "main.syslog_dead".into(),
        changes: vec![types::AlterAction::DropColumn { name: "raw".into(), if_exists: false }],
    });
    write!(stream, "<13>1 - - - - - - lost\n<13>1 - h - - - - three\n").unwrap();
    wait_for(&engine, 6);
    let counters = listener.counters();
    listener.stop();
    assert_eq!((engine.root().table("main.syslog").unwrap().rows(), dead()), (6, 1));
    let counted = [&counters.messages, &counters.dead_letters, &counters.lost];
    assert_eq!(counted.map(|counter| counter.load(Ordering::Relaxed)), [6, 1, 1]);
}
