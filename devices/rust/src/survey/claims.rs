//! Bounds of the privacy loss of a device's reports, in nats.

use crate::mechanism::draws::Coin;
use crate::mechanism::{Family, of_symbols};
use crate::store::state::together;
use crate::survey::{Coins, Parameters, Survey};

/// What a survey claims of a wallet.
pub(crate) struct Claim {
    pub(crate) per_window: f64,
    pub(crate) for_ever: f64,
    pub(crate) losses: Vec<f64>, // of one report of each attribute, at the chosen levels
}

impl Survey {
    /// The claim with these levels, for a window of this length; 0 per window without a window.
    pub(crate) fn claim(&self, levels: &[usize], window_s: Option<u64>) -> Claim {
        let chosen: Vec<&Parameters> = self.mechanisms.iter().zip(levels).map(|(all, &level)| &all[level]).collect();
        let losses: Vec<f64> = chosen.iter().map(|p| p.any_values()).collect();
        let last = self.text.ends.map_or(f64::INFINITY, |ends| ends as f64);
        let touched = |window: u64| (window.div_ceil(self.text.step_seconds as u64) + 1) as f64;
        let in_window = window_s.map_or(0.0, |window| touched(window).min(last));
        let bound = |steps| together(chosen.iter().zip(&losses).map(|(p, eps)| p.reports_in(steps) * eps), self.adds_up());
        Claim { per_window: bound(in_window), for_ever: bound(last), losses }
    }

    /// A bound of the loss of all reports while the values stay the same; infinite if nothing bounds it.
    pub(crate) fn largest_loss(&self, levels: &[usize]) -> f64 {
        let last = self.text.ends.map_or(f64::INFINITY, |ends| ends as f64);
        let share = if self.adds_up() { self.text.attribute.len() as f64 } else { 1.0 };
        let one = |(a, &chosen): (usize, &usize)| {
            let level = &self.text.attribute[a].level[chosen];
            let reports = self.mechanisms[a][chosen].reports_in(last);
            level.eps.map_or(level.eps_inf.unwrap_or(f64::INFINITY), |eps| reports * eps) / share
        };
        together(levels.iter().enumerate().map(one), self.adds_up())
    }
}

impl Survey {
    /// The loss of one report of an attribute, as the survey promises it.
    pub(crate) fn loss_of_a_report(&self, a: usize, level: usize) -> f64 {
        let level = &self.text.attribute[a].level[level];
        let share = if self.adds_up() { self.text.attribute.len() as f64 } else { 1.0 };
        level.eps.or(level.eps_1).unwrap_or(f64::INFINITY) / share
    }

    /// The loss of the reports of one step.
    pub(crate) fn loss_of_a_step(&self, levels: &[usize]) -> f64 {
        together(levels.iter().enumerate().map(|(a, &level)| self.loss_of_a_report(a, level)), self.adds_up())
    }
}

impl Parameters {
    /// The largest number of reports in a number of steps; infinite without a limit.
    fn reports_in(&self, steps: f64) -> f64 {
        (steps / self.every_steps as f64).ceil().min(self.lifetime_reports.map_or(f64::INFINITY, |most| most as f64))
    }

    /// The loss of one report between any two values and histories.
    pub(crate) fn any_values(&self) -> f64 {
        if !self.memoized() {
            return self.family.loss(self.k, &self.report).abs();
        }
        match &self.family {
            Family::Bits => {
                let ((p, n), (q, m)) = bit_chances(&self.report);
                self.k as f64 * (p / q).ln().abs().max((m / n).ln().abs())
            }
            Family::Overlaps { size, omega, ln_odds, .. } => *size.min(omega) as f64 * ln_odds,
            Family::Hashed { g, .. } => ratio(of_symbols(&self.report, *g, 1)),
            _ => ratio(of_symbols(&self.report, self.k, 1)),
        }
    }

    /// The loss of t reports if the value never changed.
    pub(crate) fn eps_t(&self, t: u64) -> f64 {
        let Some(memo) = &self.memo else { return t as f64 * self.any_values() };
        if t == 0 {
            return 0.0;
        }
        let reports = t as f64;
        let symbols = |m: u64| {
            let ((p1, q1), (p2, q2)) = (of_symbols(memo, m, 1), of_symbols(&self.report, m, 1));
            let (r, d) = (p1 / q1, (q2 / p2).powf(reports));
            ((r - 1.0) * (1.0 - d) / (1.0 + (r + m as f64 - 2.0) * d)).ln_1p()
        };
        match &self.family {
            Family::Bits => {
                let ((p1, n1), (q1, m1)) = bit_chances(memo);
                let ((p2, n2), (q2, m2)) = bit_chances(&self.report);
                let (d, e) = ((q2 / p2).powf(reports), (n2 / m2).powf(reports));
                ((p1 + n1 * d) / (q1 + m1 * d)).ln() + ((m1 + q1 * e) / (n1 + p1 * e)).ln()
            }
            Family::Overlaps { .. } if t == 1 => self.family.loss_of_two(self.k, memo, &self.report),
            Family::Overlaps { .. } => self.family.loss(self.k, memo),
            Family::Hashed { g, .. } => symbols(*g),
            Family::Sets { choices } => {
                let (yes, no) = memo["member"].probabilities();
                let (a, b) = (yes / *choices as f64, no / (self.k - choices) as f64);
                let (p2, q2) = of_symbols(&self.report, self.k, 1);
                let d = (q2 / p2).powf(reports);
                ((a + (1.0 - a) * d) / (b + (1.0 - b) * d)).ln()
            }
            _ => symbols(self.k),
        }
    }
}

fn ratio((p, q): (f64, f64)) -> f64 {
    (p / q).ln().abs()
}

fn bit_chances(coins: &Coins) -> ((f64, f64), (f64, f64)) {
    let of = |name: &str| Coin::probabilities(&coins[name]);
    (of("one"), of("zero"))
}
