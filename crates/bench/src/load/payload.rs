//! The bytes of a request that is being sent. Large requests that are sent repeatedly lie in a file in memory: the kernel
//! receives a reference to them, and the generator copies nothing. The generator shares its cores with the server, so its CPU
//! time counts.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};

/// Size in bytes from which a request is stored in the file; smaller requests are cheaper to copy.
const STORED_FROM: usize = 4 << 10;
const PAGE: usize = 4096;

/// The unsent bytes of a request.
#[derive(Clone, Debug)]
pub struct Payload(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Memory(Bytes),
    Stored { file: Arc<OwnedFd>, offset: u64, len: usize },
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload(Kind::Memory(bytes))
    }
}

/// Stores requests that are sent more than once, each from the beginning of a page. On a system without files in memory the
/// requests stay as they are.
pub fn store_in_memory_file(requests: Vec<Bytes>) -> Vec<Payload> {
    if requests.iter().all(|request| request.len() < STORED_FROM) {
        return requests.into_iter().map(Payload::from).collect();
    }
    match write_to_memory_file(&requests) {
        Ok(stored) => stored,
        Err(_) => requests.into_iter().map(Payload::from).collect(),
    }
}

fn write_to_memory_file(requests: &[Bytes]) -> io::Result<Vec<Payload>> {
    let mut file = std::fs::File::from(memfd_create("requests", MemfdFlags::CLOEXEC)?);
    let mut at = 0;
    let mut positions = Vec::with_capacity(requests.len());
    for request in requests {
        file.write_all(request)?;
        let padding = request.len().next_multiple_of(PAGE) - request.len();
        file.write_all(&[0; PAGE][..padding])?;
        positions.push((at, request.len()));
        at += (request.len() + padding) as u64;
    }
    let file = Arc::new(OwnedFd::from(file));
    let stored = |(offset, len)| Payload(Kind::Stored { file: file.clone(), offset, len });
    Ok(positions.into_iter().map(stored).collect())
}

impl Payload {
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Kind::Memory(bytes) => bytes.is_empty(),
            Kind::Stored { len, .. } => *len == 0,
        }
    }

    /// Sends as much as the socket accepts at once and drops the sent bytes.
    pub(super) fn send(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        match &mut self.0 {
            Kind::Memory(bytes) => {
                let sent = socket.write(bytes)?;
                bytes.advance(sent);
            }
            Kind::Stored { file, offset, len } => {
                let sent = sendfile(socket, &*file, Some(offset), *len)?;
                if sent == 0 {
                    return Err(io::Error::other("the file of requests is too short"));
                }
                *len -= sent;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_is_stored_arrives_as_it_was_however_slowly_it_is_read() {
        let _limit = testkit::limit(60);
        let requests: Vec<Bytes> = [5_000usize, 3, 4_096, 300_000, 12_700]
            .into_iter()
            .enumerate()
            .map(|(n, len)| (0..len).map(|i| (i * 7 + n) as u8).collect::<Vec<_>>().into())
            .collect();
        let stored = store_in_memory_file(requests.clone());
        assert!(
            stored.iter().all(|payload| matches!(payload.0, Kind::Stored { .. })),
            "this system has them"
        );
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut receiver, _) = listener.accept().expect("somebody connected");
        sender.set_nonblocking(true).expect("a socket");
        for round in 0..3 {
            for (request, payload) in requests.iter().zip(&stored) {
                let mut payload = payload.clone();
                let mut found = vec![0; request.len()];
                let mut filled = 0;
                while filled < found.len() {
                    while !payload.is_empty() {
                        match payload.send(&sender) {
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                            other => other.expect("it takes some"),
                        }
                    }
                    let end = (filled + 50_000).min(found.len());
                    filled += receiver.read(&mut found[filled..end]).expect("something was sent");
                }
                assert!(payload.is_empty() && found == *request, "{} bytes, round {round}", request.len());
            }
        }
    }

    #[test]
    fn small_requests_are_copied() {
        let stored = store_in_memory_file(vec![Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")]);
        assert!(matches!(stored[0].0, Kind::Memory(_)));
    }
}
