//! The data of the storm: events, readings, documents and notes, all derived from a seed.

use std::collections::BTreeSet;

use crate::random::Random;

/// Number of different words in documents and notes.
const WORDS: usize = 2_000;
/// Number of random words in a document.
const DOCUMENT_WORDS: usize = 60;
/// Number of groups of documents. Each group has a word of its own.
pub(super) const GROUPS: u64 = 40;
/// Number of different bodies of events. They are reused with other batch numbers.
const BODIES: usize = 32;
/// Width in digits of the batch number in an event. Spaces pad it on the left, which JSON allows.
const NUMBER_DIGITS: usize = 10;

const STARTS: [&str; 16] =
    ["b", "br", "d", "f", "gl", "h", "k", "l", "m", "n", "p", "r", "st", "t", "v", "w"];
const MIDDLES: [&str; 8] = ["a", "e", "i", "o", "u", "ai", "ou", "ea"];

/// Words that exist in no language, frequent ones first.
#[derive(Debug)]
pub(super) struct Vocabulary(Vec<String>);

impl Vocabulary {
    pub(super) fn new(seed: u64) -> Vocabulary {
        let mut random = Random::part(seed, 1);
        let mut seen = BTreeSet::new();
        let mut words = Vec::with_capacity(WORDS);
        while words.len() < WORDS {
            let mut word = String::new();
            for _ in 0..3 {
                word.push_str(STARTS[random.below(16) as usize]);
                word.push_str(MIDDLES[random.below(8) as usize]);
            }
            // The `x` prevents a stemmer from stripping an ending.
            word.push('x');
            if seen.insert(word.clone()) {
                words.push(word);
            }
        }
        Vocabulary(words)
    }

    /// Draws a word; low indexes come more often, roughly as in natural language.
    pub(super) fn draw(&self, random: &mut Random) -> &str {
        let part = random.below(1 << 20) as f64 / (1 << 20) as f64;
        &self.0[((WORDS as f64).powf(part) - 1.0) as usize % WORDS]
    }

    fn text(&self, words: usize, random: &mut Random, out: &mut String) {
        for n in 0..words {
            if n > 0 {
                out.push(' ');
            }
            out.push_str(self.draw(random));
        }
    }
}

/// The word that only document `id` contains.
pub(super) fn own_word(id: u64) -> String {
    format!("zq{id}")
}

/// The word that all documents of a group contain.
pub(super) fn group_word(group: u64) -> String {
    format!("yk{group}")
}

/// Renders a document of `articles` or `archive`.
pub(super) fn document(words: &Vocabulary, seed: u64, id: u64) -> serde_json::Value {
    let mut random = Random::part(seed, 1 << 40 | id);
    let mut body = format!("{} {} ", own_word(id), group_word(id % GROUPS));
    words.text(DOCUMENT_WORDS, &mut random, &mut body);
    serde_json::json!({ "id": id, "title": format!("Document {id}"), "body": body })
}

/// Renders a note's Markdown. Only the revision changes.
pub(super) fn note(words: &Vocabulary, seed: u64, notes: u64, number: u64, revision: u64) -> String {
    let mut random = Random::part(seed, 2 << 40 | number);
    let mut text = format!("---\ntitle: Note {number}\n---\n{}\n\n", note_mark(number));
    for paragraph in 0..6 {
        if paragraph % 2 == 0 {
            text.push_str(&format!("## Part {paragraph}\n\n"));
        }
        words.text(50, &mut random, &mut text);
        text.push_str(&format!(" [[note-{}]].\n\n", random.below(notes)));
    }
    text.push_str(&format!("{}{revision}.\n", REVISION));
    text
}

/// The sentence that a note's page must contain.
pub(super) fn note_mark(number: u64) -> String {
    format!("This is note {number} of the storm.")
}

/// The text before the number of a note's revision.
pub(super) const REVISION: &str = "It stands at revision ";

/// Renders one row of `readings`.
pub(super) fn reading(id: u64, version: u64) -> serde_json::Value {
    serde_json::json!({ "id": id, "version": version, "place": format!("sensor {id}"), "note": format!("version {version} of {id}") })
}

/// Bodies of events, with the batch number in every row.
#[derive(Debug)]
pub(super) struct Events {
    batch: usize,
    templates: Vec<Template>,
}

#[derive(Debug)]
struct Template {
    body: Vec<u8>,
    /// Offset of the end of the batch number, for each row.
    ends: Vec<usize>,
    /// Sum of the rows' `value`.
    sum: u64,
}

impl Events {
    pub(super) fn new(seed: u64, batch: usize) -> Events {
        let templates = (0..BODIES as u64)
            .map(|n| {
                let mut random = Random::part(seed, 3 << 40 | n);
                let (mut body, mut ends, mut sum) = (Vec::with_capacity(batch * 130), Vec::new(), 0);
                for slot in 0..batch {
                    let value = random.below(1_000);
                    sum += value;
                    body.extend_from_slice(if slot == 0 { b"[{\"batch\":" } else { b",{\"batch\":" });
                    body.extend_from_slice(&[b' '; NUMBER_DIGITS]);
                    ends.push(body.len());
                    body.extend_from_slice(
                        format!(",\"slot\":{slot},\"value\":{value},\"payload\":\"").as_bytes(),
                    );
                    random.text(60, &mut body);
                    body.extend_from_slice(b"\"}");
                }
                body.push(b']');
                Template { body, ends, sum }
            })
            .collect();
        Events { batch, templates }
    }

    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Renders the body of batch `number`.
    pub(super) fn body(&self, number: u64) -> Vec<u8> {
        let template = self.template(number);
        let mut body = template.body.clone();
        let digits = number.to_string();
        assert!(digits.len() <= NUMBER_DIGITS, "batch {number} has more figures than a body has room for");
        for end in &template.ends {
            body[end - digits.len()..*end].copy_from_slice(digits.as_bytes());
        }
        body
    }

    /// Returns the sum of the values of a batch.
    pub(super) fn sum(&self, number: u64) -> u64 {
        self.template(number).sum
    }

    fn template(&self, number: u64) -> &Template {
        &self.templates[number as usize % BODIES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_json_with_its_number_in_every_row_and_the_promised_sum() {
        let events = Events::new(1, 7);
        for number in [0, 31, 32, 9_999_999_999] {
            let rows: Vec<serde_json::Value> = serde_json::from_slice(&events.body(number)).expect("JSON");
            assert_eq!(rows.len(), 7);
            let sum: u64 = rows.iter().map(|row| row["value"].as_u64().expect("a number")).sum();
            assert_eq!(sum, events.sum(number));
            for (slot, row) in rows.iter().enumerate() {
                assert_eq!((row["batch"].as_u64(), row["slot"].as_u64()), (Some(number), Some(slot as u64)));
            }
        }
        assert_ne!(events.body(0), events.body(1));
    }

    #[test]
    fn documents_have_a_word_of_their_own_and_notes_say_who_they_are() {
        let words = Vocabulary::new(1);
        let body = document(&words, 1, 83)["body"].as_str().expect("a text").to_owned();
        assert!(body.contains("zq83 ") && body.contains("yk3 "), "{body}");
        let note = note(&words, 1, 10, 4, 77);
        assert!(note.contains("This is note 4 of the storm.") && note.contains("at revision 77."), "{note}");
        assert_eq!(Vocabulary::new(1).0, words.0);
    }
}
