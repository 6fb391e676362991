//! Scales the default memory bounds to the memory of the process.
//!
//! The defaults of profile `server` together allow [`DEFAULTS_BYTES`]. If the process may take less memory than that needs,
//! every default is scaled down by the same factor. Bounds that the user set stay as they are; a warning names those that do
//! not fit.

use crate::config::{Config, ProfileName};
use crate::memory::Limit;
use crate::units::ByteSize;

/// The settings whose defaults are scaled, and these defaults in bytes.
const SETTINGS: [(&str, u64); 3] = [
    ("sql.memory_bytes_max", 512 << 20),
    ("lake.read_bytes_max", 128 << 20),
    ("server.body_bytes_max", 64 << 20),
];

/// Bytes that all defaults allow together: rows that are in no segment, transactions that wait for the commit thread, open
/// transactions, request bodies, SQL with its light statements, and the cache of readers of the lake.
const DEFAULTS_BYTES: u64 = (512 + 192 + 512 + 512 + 576 + 128) << 20;

/// Returns the part of the memory for everything that has a bound here: five eighths. The rest is for the program itself,
/// indexes, merges and data in transit.
const fn room(limit: u64) -> u64 {
    limit / 8 * 5
}

/// The factor by which default bounds are scaled, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    thousandths: u64,
}

impl Share {
    pub const WHOLE: Share = Share { thousandths: 1_000 };

    /// Computes the share with which all defaults together fit into the limit.
    pub fn within(limit: Option<&Limit>) -> Share {
        let thousandths = limit.map_or(1_000, |limit| room(limit.bytes) * 1_000 / DEFAULTS_BYTES);
        Share { thousandths: thousandths.min(1_000) }
    }

    /// Scales a number of bytes, to no less than 1 MiB.
    pub fn of_bytes(self, bytes: u64) -> u64 {
        match self {
            Share::WHOLE => bytes,
            share => share.of(bytes).max(1 << 20),
        }
    }

    /// Scales a number, to no less than 1.
    pub fn of(self, number: u64) -> u64 {
        (number.saturating_mul(self.thousandths) / 1_000).max(1)
    }

    /// Returns the scaled defaults of settings, as texts.
    pub fn settings(self) -> Vec<(&'static str, String)> {
        let scaled = |(path, bytes)| (path, format!("{} MiB", (self.of_bytes(bytes) >> 20).max(1)));
        SETTINGS.into_iter().map(scaled).collect()
    }

    pub fn engine(self, options: &mut engine::Options) {
        for bytes in [
            &mut options.seal_bytes,
            &mut options.debt_soft_bytes,
            &mut options.debt_hard_bytes,
            &mut options.inbox_bytes_max,
            &mut options.group_bytes_max,
            &mut options.transactions.bytes_max,
            &mut options.transactions.bytes_of_all_max,
        ] {
            *bytes = self.of_bytes(*bytes);
        }
        options.seal_rows = self.of(options.seal_rows);
        options.compaction.keyed_rows_max = self.of(options.compaction.keyed_rows_max);
    }

    pub fn server(self, options: &mut server::Options) {
        let bytes = |bytes: usize| usize::try_from(self.of_bytes(bytes as u64)).unwrap_or(usize::MAX);
        options.body_bytes_total_max = bytes(options.body_bytes_total_max).max(options.body_bytes_max);
        options.rows_bytes_max = bytes(options.rows_bytes_max);
    }
}

/// Returns the warning at the start of a server whose bounds do not fit into its memory, or whose defaults were scaled.
/// `None` if all bounds fit, and for the profile `edge`.
pub fn memory_warning(config: &Config) -> Option<String> {
    let limit = config.memory.as_ref()?;
    let allowed = ByteSize(limit.bytes);
    let from = limit.from.display();
    if config.profile == ProfileName::Edge {
        return None;
    }
    let large = config.larger_than(&config.share.settings());
    if !large.is_empty() {
        return Some(format!(
            "the process may take {allowed} of memory ({from}), and these bounds are for more: {}; lower them, or it may be killed",
            large.join(", ")
        ));
    }
    (config.share != Share::WHOLE).then(|| {
        format!(
            "the process may take {allowed} of memory ({from}), less than the default bounds allow: they are at {} % of that; `polynya config` shows them, `profile = \"edge\"` is for the smallest machines",
            config.share.thousandths / 10
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(mib: u64) -> Share {
        Share::within(Some(&Limit { bytes: mib << 20, from: "memory.max".into() }))
    }

    #[test]
    fn defaults_stay_where_they_fit_and_shrink_together_where_they_do_not() {
        assert_eq!(Share::within(None), Share::WHOLE);
        assert_eq!(share(8_192), Share::WHOLE);
        let small = share(512);
        assert!((120..140).contains(&small.thousandths), "{small:?}");
        assert_eq!(small.settings()[0], ("sql.memory_bytes_max", "67 MiB".to_owned()));
        let mut engine = engine::Options::default();
        small.engine(&mut engine);
        let all = engine.debt_hard_bytes + engine.inbox_bytes_max + engine.transactions.bytes_of_all_max;
        assert!(all < 256 << 20, "{all}");
        assert!(engine.debt_soft_bytes < engine.debt_hard_bytes);
    }

    /// [`DEFAULTS_BYTES`] is a written number, which must not drift from the sum of the options' defaults.
    #[test]
    fn the_sum_of_the_defaults_is_that_of_their_options() {
        let (engine, server) = (engine::Options::default(), server::Options::default());
        let sql: u64 = SETTINGS[0].1;
        let sum = engine.debt_hard_bytes
            + engine.inbox_bytes_max
            + engine.transactions.bytes_of_all_max
            + server.body_bytes_total_max as u64
            + sql
            + sql / 8
            + SETTINGS[1].1;
        assert_eq!(sum, DEFAULTS_BYTES);
        for (path, bytes) in SETTINGS {
            let default =
                crate::config::SETTINGS.iter().find(|setting| setting.path == path).unwrap().default;
            assert_eq!(default.parse::<ByteSize>().unwrap().0, bytes, "{path}");
        }
    }
}
