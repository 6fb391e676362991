//! Questions about the machine: the measure, and the condition on it.

use types::{Micros, TableDef};

use super::{QuestionElements, aggregate, unknown_words};
use crate::comparison::{Op, Unit};
use crate::task::{Measure, MetricsQuery, Predicate, Quantity, RowScope, SourceQuery, SourceTask};
use crate::time::{MINUTE, Window};
use crate::vocabulary as v;
use crate::words::Words;

/// Returns the measures that a question is about, with the words that named each.
pub(super) fn measures(
    words: &Words,
    elements: &QuestionElements,
) -> Vec<(Measure, Vec<&'static [&'static str]>)> {
    let mut measures: Vec<(Measure, Vec<&'static [&'static str]>)> = Vec::new();
    let bytes = elements.comparisons.iter().any(|c| matches!(c.unit, Some(Unit::Bytes(_))));
    let free = words.any(&["free", "left", "available", "remaining"]);
    let quantity = match (bytes, free && !elements.comparisons.is_empty()) {
        (false, false) => Quantity::UsedPercent,
        (false, true) => Quantity::FreePercent,
        (true, false) => Quantity::UsedBytes,
        (true, true) => Quantity::FreeBytes,
    };
    let full = words.any(&["full", "fullest", "space", "room", "free", "capacity", "fill", "filling"]);
    let memory = words.any(v::MEMORY);
    if words.any(v::DISK) && words.any(v::ACTIVITY) && !full {
        measures.push((Measure::DiskActivity, vec![v::DISK, v::ACTIVITY, v::BUSY, &["how"]]));
    } else if words.any(v::DISK) || (words.any(v::SPACE) && !memory) {
        let space: Vec<&[&str]> =
            vec![v::DISK, v::SPACE, v::FULLNESS, v::NEARLY, v::BUSY, &["enough", "out", "how"]];
        measures.push((Measure::Filesystem(quantity), space));
    }
    if memory {
        measures.push((
            Measure::Memory(quantity),
            vec![v::MEMORY, v::SPACE, v::FULLNESS, v::NEARLY, v::BUSY, &["enough", "out"]],
        ));
    }
    let simple: [(&'static [&'static str], Measure); 6] = [
        (v::SWAP, Measure::Swap),
        (v::CORES, Measure::Cores),
        (v::CPU, Measure::Cpu),
        (v::LOAD, Measure::Load),
        (v::NETWORK, Measure::Network),
        (v::PRESSURE, Measure::Pressure),
    ];
    for (vocabulary, measure) in simple {
        // `cpu load` means CPU usage; `cpu cores` means the cores.
        let shadowed = match measure {
            Measure::Load => words.any(v::CPU),
            Measure::Cpu => words.any(v::CORES) || words.any(v::PRESSURE),
            _ => false,
        };
        if words.any(vocabulary) && !shadowed {
            let used: Vec<&'static [&'static str]> = vec![
                vocabulary,
                v::BUSY,
                v::CPU,
                v::LOAD,
                &["usage", "use", "used", "using", "traffic", "average", "in", "per"],
            ];
            let both = measure == Measure::Network;
            measures.push((measure, used.clone()));
            if both {
                measures.push((Measure::Sent, used));
            }
        }
    }
    if measures.is_empty() && words.any(v::MACHINE) && words.any(v::BUSY) {
        let used: Vec<&'static [&'static str]> = vec![v::MACHINE, v::BUSY];
        measures.push((Measure::Cpu, used.clone()));
        measures.push((Measure::Load, used));
    }
    // A metric named directly has an underscore.
    let named =
        words.list.iter().filter(|word| !word.used && word.text.contains('_') && !word.text.starts_with('_'));
    for word in named.filter(|_| elements.tables.iter().all(|(_, range)| range.is_empty())) {
        measures.push((Measure::ByName(word.raw.clone()), vec![v::BUSY]));
    }
    measures
}

/// Returns the task for one measure. `several`: the question is about other measures too.
pub(super) fn metrics(
    measure: Measure,
    words: &mut Words,
    elements: &QuestionElements,
    several: bool,
) -> SourceTask {
    let original = words.clone();
    if let Measure::ByName(name) = &measure {
        for word in words.list.iter_mut().filter(|word| word.raw == *name) {
            word.used = true;
        }
    }
    let aggregate = aggregate(words);
    let asks_how = original.any(&["how"]) && !original.any(&["whether"]);
    let percent = |phrase: &'static str, op: Op, bound: f64| Some(Predicate::Word { phrase, op, bound });
    let by_word = match &measure {
        _ if asks_how => None,
        Measure::Filesystem(_) if original.any(&["enough"]) => {
            percent("enough room", Op::Below, v::NEARLY_FULL_PERCENT)
        }
        Measure::Filesystem(_) if original.any(&["full", "filled"]) && !original.any(v::NEARLY) => {
            percent("full", Op::AtLeast, v::FULL_PERCENT)
        }
        Measure::Filesystem(_) if original.any(v::NEARLY) => {
            percent("nearly full", Op::AtLeast, v::NEARLY_FULL_PERCENT)
        }
        Measure::Memory(_) if original.any(&["enough"]) => {
            percent("enough left", Op::Below, v::NEARLY_FULL_PERCENT)
        }
        Measure::Memory(_) if original.any(v::NEARLY) || original.any(&["full"]) => {
            percent("nearly full", Op::AtLeast, v::NEARLY_FULL_PERCENT)
        }
        Measure::Load if original.any(v::BUSY) => Some(Predicate::LoadPerCore),
        Measure::Memory(_) | Measure::Cpu | Measure::Cores | Measure::DiskActivity
            if original.any(v::BUSY) =>
        {
            percent("high", Op::AtLeast, v::BUSY_PERCENT)
        }
        _ => None,
    };
    let predicate = elements.comparisons.first().cloned().map(Predicate::Compare).or(by_word);
    let mut not_understood = unknown_words(words);
    // The share of one process is not that of the machine.
    let own = original.list.iter().find(|word| !word.quoted && word.text == "polynya");
    not_understood.extend(own.map(|word| word.raw.clone()));
    // One bound is compared; with several it is unclear which applies.
    if elements.comparisons.len() > 1 {
        let of = if several { 0 } else { 1 };
        not_understood
            .extend(elements.comparisons.iter().skip(of).map(|comparison| comparison.phrase.clone()));
    }
    // The time at which a condition held can be answered, not the time since or until which it did.
    let asks_when = original.any(&["when"]);
    let when = asks_when && predicate.is_some() && aggregate.is_none();
    if asks_when && !when {
        not_understood.push("when".into());
    }
    let scope = RowScope {
        window: elements.window.clone(),
        negated: elements.is_negated(),
        aggregate,
        limit: elements.limit,
        not_understood,
    };
    SourceTask {
        source: "metrics".into(),
        kind: "metrics",
        query: SourceQuery::Metrics(MetricsQuery { measure, predicate, when, scope }),
    }
}

/// Interprets `which process uses the most memory`: groups by name over the last readings, unless the question says otherwise.
pub(super) fn processes(
    def: &TableDef,
    words: &mut Words,
    columns: &mut Vec<usize>,
    group: &mut Option<usize>,
    window: &mut Option<Window>,
    now: Micros,
) {
    for (vocabulary, name) in [(v::MEMORY, "rss_bytes"), (v::CPU, "cpu_percent")] {
        if words.take(vocabulary)
            && let Some(column) = column_of(def, name).filter(|column| !columns.contains(column))
        {
            columns.push(column);
            *group = group.or(column_of(def, "name"));
        }
    }
    words.take(&["use", "uses", "used", "using", "usage", "take", "takes", "running", "busy", "busiest"]);
    if group.is_some() && window.is_none() {
        *window = Some(Window { from: now - MINUTE, to: None, phrase: "in the last minute".into() });
    }
}

fn column_of(def: &TableDef, name: &str) -> Option<usize> {
    def.schema.columns.iter().position(|column| column.name == name)
}
