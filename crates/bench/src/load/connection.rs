//! One non-blocking keep-alive connection of the load.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::Payload;
use crate::http::Incoming;

/// The request in flight.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) tag: u64,
    pub(super) intended: Instant,
    pub(super) sent: Instant,
    unwritten: Payload,
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    pub(super) incoming: Incoming,
    pub(super) flight: Option<Flight>,
    /// True if the server closed the connection between answers, or announced that it would.
    pub(super) closed: bool,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Connection, String> {
        let open = || {
            let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket =
            open().map_err(|error: std::io::Error| format!("connecting to {address} failed: {error}"))?;
        Ok(Connection { socket, incoming: Incoming::default(), flight: None, closed: false })
    }

    pub(super) fn begin(
        &mut self,
        bytes: Payload,
        tag: u64,
        intended: Instant,
        sent: Instant,
    ) -> Result<(), String> {
        debug_assert!(self.flight.is_none(), "one request in flight a connection");
        self.incoming.reset();
        self.flight = Some(Flight { tag, intended, sent, unwritten: bytes });
        self.write()
    }

    /// Writes as much as the socket accepts.
    pub(super) fn write(&mut self) -> Result<(), String> {
        let Some(flight) = &mut self.flight else { return Ok(()) };
        while !flight.unwritten.is_empty() {
            match flight.unwritten.send(&self.socket) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("sending a request failed: {error}")),
            }
        }
        Ok(())
    }

    /// Reads the bytes that have arrived. Returns true once the answer to the request in flight is complete.
    pub(super) fn read(&mut self) -> Result<bool, String> {
        loop {
            let space = self.incoming.space();
            let room = space.len();
            let count = match self.socket.read(space) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) if self.flight.is_none() => 0,
                Err(error) => return Err(format!("reading an answer failed: {error}")),
            };
            if self.flight.is_none() {
                if count > 0 {
                    return Err("bytes came from the server without a request".into());
                }
                self.closed = true;
                return Ok(false);
            }
            if count == 0 && self.incoming.is_empty() {
                return Err("the connection was closed without an answer".into());
            }
            if self.incoming.received(count)? {
                self.closed |= self.incoming.closes();
                return Ok(true);
            }
            // A short read has emptied the socket; later bytes trigger an edge of their own.
            if count < room {
                return Ok(false);
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
