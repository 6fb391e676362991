//! A server that cannot start gives the reason and the remedy in one sentence.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use bench::child;
use engine::{Engine, Options};
use polynya_e2e::{golden, program};
use testkit::temp_dir;
use vfs::Env;

const ANYWHERE: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn serve(directory: &Path, more: &[&str]) -> String {
    let mut args = vec!["serve", "--data", "data"];
    args.extend(if more.contains(&"--listen") { &[][..] } else { &ANYWHERE });
    args.extend(more);
    program::complaint(directory, &args)
}

#[test]
fn a_busy_port_is_said_before_anything_is_made() {
    let _limit = testkit::limit(60);
    let place = temp_dir("busy-port");
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    for command in ["serve", "demo"] {
        let listen = address.to_string();
        let said = program::complaint(&place, &[command, "--data", "data", "--listen", &listen]);
        assert!(
            said.contains(&format!("port {} is taken", address.port())) && said.contains("--listen"),
            "{said}"
        );
    }
    assert!(!place.join("data").exists());
}

#[test]
fn a_directory_that_another_process_has_open_is_said_to_be() {
    let _limit = testkit::limit(60);
    let place = temp_dir("in-use");
    // The other process is a program that uses the library.
    let engine = Engine::open(Env::real(), &place.join("data"), Options::default()).unwrap();
    let said = serve(&place, &[]);
    assert!(said.contains("another process") && said.contains("--data"), "{said}");
    engine.close().unwrap();
}

#[test]
fn a_second_server_of_a_directory_is_refused_and_the_first_serves_on() {
    let _limit = testkit::limit(60);
    let place = temp_dir("second-server");
    let mut options = child::Options::new(program::polynya());
    options.root = place.path().to_owned();
    let mut home = child::Home::new(options).unwrap();
    let mut server = home.start().unwrap();
    let data = home.data();
    let said =
        program::complaint(&place, &["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(said.contains("running") || said.contains("another process"), "{said}");
    server.wait_until_ready(Duration::from_secs(5)).unwrap();
    server.stop(Duration::from_secs(30)).unwrap();
}

#[test]
fn a_directory_of_a_newer_format_is_refused_and_left_as_it_is() {
    let _limit = testkit::limit(60);
    let place = temp_dir("newer");
    let data = place.join("data");
    golden::copy(&golden::home().join("v1").join(golden::DATA), &data).unwrap();
    // The file begins with 8 bytes of magic, followed by the version.
    let manifest = newest_manifest(&data);
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[8..12].copy_from_slice(&9u32.to_le_bytes());
    std::fs::write(&manifest, &bytes).unwrap();
    let said = serve(&place, &[]);
    assert!(said.contains("format 9") && said.contains("newer Polynya"), "{said}");
    assert_eq!(std::fs::read(&manifest).unwrap(), bytes);
}

fn newest_manifest(data: &Path) -> std::path::PathBuf {
    let paths = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let is_manifest =
        |path: &std::path::PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("manifest-");
    paths.filter(is_manifest).max().unwrap()
}

#[test]
fn a_directory_that_cannot_be_made_or_written_is_said_so() {
    let _limit = testkit::limit(60);
    let place = temp_dir("not-writable");
    // No directory can exist below a file, not even for root.
    std::fs::write(place.join("file"), "").unwrap();
    let said = program::complaint(&place, &["serve", "--data", "file/data", "--listen", "127.0.0.1:0"]);
    assert!(said.contains("file/data"), "{said}");

    // Permissions do not restrict root, so root gets a path that the kernel refuses to everybody.
    let closed = place.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o500)).unwrap();
    let binds = std::fs::write(closed.join("probe"), "").is_err();
    let directory = if binds { "closed/data" } else { "/sys/polynya-data" };
    let said = program::complaint(&place, &["serve", "--data", directory, "--listen", "127.0.0.1:0"]);
    assert!(said.contains(directory) && said.contains("--data"), "{said}");
}
