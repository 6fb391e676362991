//! Encodings of the change feed: server-sent events, or messages of a WebSocket.

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use types::{Error, Lsn, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Insert,
    Delete,
}

impl ChangeKind {
    fn name(self) -> &'static str {
        match self {
            ChangeKind::Insert => "insert",
            ChangeKind::Delete => "delete",
        }
    }
}

/// A piece of a feed that is being encoded.
pub trait FeedEncoder: Default + Send + 'static {
    type Piece: Send;

    /// Adds one change. `row` is JSON without line breaks.
    fn change(&mut self, kind: ChangeKind, lsn: Lsn, row: &[u8]);

    /// Adds a mark: all changes up to this commit were sent, so a client may resume from it.
    fn resume(&mut self, lsn: Lsn);

    /// Adds a sign of life after a pause. The changes sent so far may end within a commit.
    fn keep_alive(&mut self);

    fn bytes(&self) -> usize;

    fn finish(self) -> Result<Self::Piece>;
}

/// Server-sent events. The last event of a commit carries the commit's lsn as its id, so each event is kept open until the next
/// one shows whether it is the last.
#[derive(Debug, Default)]
pub struct Events {
    text: Vec<u8>,
    open: Option<Lsn>,
}

impl Events {
    fn end(&mut self, id: Option<Lsn>) {
        if let Some(id) = id {
            self.text.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        self.text.push(b'\n');
    }
}

impl FeedEncoder for Events {
    type Piece = Bytes;

    fn change(&mut self, kind: ChangeKind, lsn: Lsn, row: &[u8]) {
        if let Some(before) = self.open.replace(lsn) {
            self.end(Some(before).filter(|before| *before != lsn));
        }
        self.text.extend_from_slice(b"event: ");
        self.text.extend_from_slice(kind.name().as_bytes());
        self.text.extend_from_slice(b"\ndata: ");
        self.text.extend_from_slice(row);
        self.text.push(b'\n');
    }

    fn resume(&mut self, lsn: Lsn) {
        if self.open.take().is_none() {
            self.text.extend_from_slice(b": still here\n");
        }
        self.end(Some(lsn));
    }

    fn keep_alive(&mut self) {
        if self.open.take().is_some() {
            self.end(None);
        }
        self.text.extend_from_slice(b": still here\n\n");
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }

    fn finish(mut self) -> Result<Bytes> {
        // The commit may continue in the next piece, so its last event gets no id here.
        if self.open.take().is_some() {
            self.end(None);
        }
        Ok(self.text.into())
    }
}

/// Messages of a WebSocket: one JSON message for each change, and one after whole commits that says where to resume.
#[derive(Debug, Default)]
pub struct Messages {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Messages {
    fn message(&mut self, begin: String, row: &[u8], end: &[u8]) {
        self.text.extend_from_slice(begin.as_bytes());
        self.text.extend_from_slice(row);
        self.text.extend_from_slice(end);
        self.ends.push(self.text.len());
    }
}

impl FeedEncoder for Messages {
    type Piece = Vec<Utf8Bytes>;

    fn change(&mut self, kind: ChangeKind, lsn: Lsn, row: &[u8]) {
        let kind = kind.name();
        self.message(format!("{{\"event\":\"{kind}\",\"lsn\":{lsn},\"row\":"), row, b"}");
    }

    fn resume(&mut self, lsn: Lsn) {
        self.message(format!("{{\"event\":\"resume\",\"lsn\":{lsn}}}"), b"", b"");
    }

    /// Adds nothing, because the socket sends pings.
    fn keep_alive(&mut self) {}

    fn bytes(&self) -> usize {
        self.text.len()
    }

    fn finish(self) -> Result<Vec<Utf8Bytes>> {
        let mut rest = Bytes::from(self.text);
        let mut from = 0;
        let mut messages = Vec::with_capacity(self.ends.len());
        for end in self.ends {
            let message = rest.split_to(end - from);
            from = end;
            let text = Utf8Bytes::try_from(message);
            messages.push(text.map_err(|e| Error::internal(format!("JSON that is not UTF-8: {e}")))?);
        }
        Ok(messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &[u8] = b"{\"_row_id\":1}";

    #[test]
    fn the_last_event_of_a_commit_carries_its_lsn() {
        let mut events = Events::default();
        events.change(ChangeKind::Delete, Lsn(3), ROW);
        events.change(ChangeKind::Insert, Lsn(3), ROW);
        events.change(ChangeKind::Insert, Lsn(4), ROW);
        events.resume(Lsn(6));
        let text = String::from_utf8(events.finish().unwrap().to_vec()).unwrap();
        let ids: Vec<_> = text.split("\n\n").map(|event| event.lines().nth(2)).collect();
        assert_eq!(ids, [None, Some("id: 3"), Some("id: 6"), None], "{text}");
    }

    #[test]
    fn a_commit_that_goes_on_in_the_next_piece_has_no_id_yet() {
        let mut events = Events::default();
        events.change(ChangeKind::Insert, Lsn(3), ROW);
        let text = String::from_utf8(events.finish().unwrap().to_vec()).unwrap();
        assert_eq!(text, "event: insert\ndata: {\"_row_id\":1}\n\n");
        // If nothing of the commit is left, the id comes alone. A client takes an id from a comment too.
        let mut events = Events::default();
        events.resume(Lsn(3));
        assert_eq!(&*events.finish().unwrap(), b": still here\nid: 3\n\n");
    }

    #[test]
    fn each_event_is_a_message() {
        let mut messages = Messages::default();
        messages.change(ChangeKind::Delete, Lsn(3), ROW);
        messages.change(ChangeKind::Insert, Lsn(3), b"{\"a\":\"\xc3\xa4\"}");
        messages.resume(Lsn(3));
        assert_eq!(
            messages.finish().unwrap(),
            [
                r#"{"event":"delete","lsn":3,"row":{"_row_id":1}}"#,
                r#"{"event":"insert","lsn":3,"row":{"a":"ä"}}"#,
                r#"{"event":"resume","lsn":3}"#,
            ]
        );
    }
}
