//! The order in which actors take their steps.

use testkit::Rng;

/// Selects by a seed which of several actors steps next.
///
/// An even choice at every step would hardly ever let one actor run far ahead of another, but that is when races show.
/// So each actor has a weight, from rare to frequent, and the weights are drawn again every few dozen steps.
#[derive(Clone, Debug)]
pub struct Schedule {
    rng: Rng,
    weights: Vec<u64>,
    steps_left: u64,
}

/// The possible weights of an actor; the rarest gets one step in some hundred.
const WEIGHTS: [u64; 5] = [1, 3, 10, 30, 100];

impl Schedule {
    pub fn new(seed: u64) -> Self {
        Schedule { rng: Rng::new(seed), weights: Vec::new(), steps_left: 0 }
    }

    /// Returns one of `0..actors`; panics if there are none.
    pub fn next(&mut self, actors: usize) -> usize {
        self.next_where(actors, |_| true).expect("there is an actor")
    }

    /// Returns one of the actors that can step now. `None` if none can; with unfinished actors that is a deadlock.
    pub fn next_where(&mut self, actors: usize, can_step: impl Fn(usize) -> bool) -> Option<usize> {
        if self.steps_left == 0 || self.weights.len() != actors {
            self.weights = (0..actors).map(|_| *self.rng.pick(&WEIGHTS)).collect();
            self.steps_left = self.rng.range(1..100);
        }
        self.steps_left -= 1;
        let weight = |actor: &usize| self.weights[*actor];
        let total: u64 = (0..actors).filter(|actor| can_step(*actor)).map(|actor| weight(&actor)).sum();
        if total == 0 {
            return None;
        }
        let mut at = self.rng.below(total);
        (0..actors).filter(|actor| can_step(*actor)).find(|actor| match at.checked_sub(weight(actor)) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        })
    }

    /// The generator for choices within a step, so that they follow the same seed.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_schedules() {
        let run = |seed| {
            let mut schedule = Schedule::new(seed);
            (0..1000).map(|_| schedule.next(4)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn each_actor_steps_and_each_is_at_some_time_left_far_behind() {
        let mut schedule = Schedule::new(3);
        let (mut steps, mut waited, mut longest) = ([0; 3], [0; 3], [0; 3]);
        for _ in 0..10_000 {
            let actor = schedule.next(3);
            steps[actor] += 1;
            for other in 0..3 {
                waited[other] = if other == actor { 0 } else { waited[other] + 1 };
                longest[other] = longest[other].max(waited[other]);
            }
        }
        assert!(steps.iter().all(|steps| *steps > 1000), "{steps:?}");
        // An even choice would starve an actor for 40 steps about once in ten million.
        assert!(longest.iter().all(|steps| *steps > 40), "{longest:?}");
    }

    #[test]
    fn only_actors_that_can_step_are_picked() {
        let mut schedule = Schedule::new(4);
        for _ in 0..100 {
            let actor = schedule.next_where(5, |actor| actor % 2 == 1).unwrap();
            assert!(actor == 1 || actor == 3);
        }
        assert_eq!(schedule.next_where(5, |_| false), None);
        assert_eq!(schedule.next_where(0, |_| true), None);
    }
}
