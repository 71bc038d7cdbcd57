//! Bounds of the privacy loss of a device's reports, in nats.

use crate::mechanism::draws::Coin;
use crate::mechanism::{Family, of_symbols};
use crate::store::state::together;
use crate::survey::{Coins, Parameters, Survey};

const MOST_REPORTS: f64 = 1000.0; // more reports of one-time levels count as certainty, or by their whole loss

/// The loss of one report of an attribute in nats, and the number of reports.
pub(crate) type Made = (f64, f64);

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
        self.loss_of(&self.losses(levels))
    }

    /// For each attribute the loss of one report, and the largest number of reports while the value stays the same. All reports
    /// of a memoized level count as one report with the loss of its memo.
    pub(crate) fn losses(&self, levels: &[usize]) -> Vec<Made> {
        let last = self.text.ends.map_or(f64::INFINITY, |ends| ends as f64);
        let one = |(a, &chosen): (usize, &usize)| {
            let level = &self.text.attribute[a].level[chosen];
            match level.eps {
                Some(eps) => (eps / self.share(), self.mechanisms[a][chosen].reports_in(last)),
                None => (level.eps_inf.unwrap_or(f64::INFINITY) / self.share(), 1.0),
            }
        };
        levels.iter().enumerate().map(one).collect()
    }

    /// The loss of one report of an attribute, as the survey promises it, and the number 1.
    pub(crate) fn loss_of_a_report(&self, a: usize, level: usize) -> Made {
        let level = &self.text.attribute[a].level[level];
        (level.eps.or(level.eps_1).unwrap_or(f64::INFINITY) / self.share(), 1.0)
    }

    /// An upper bound of the chance of a right guess among k equally likely values; docs/reference/write_a_device.md has the
    /// formula.
    pub(crate) fn guess_bound(&self, k: u64, made: &[Made]) -> f64 {
        let of_loss = 1.0 / (1.0 + (k - 1) as f64 * (-self.loss_of(made)).exp());
        let added = [(made.iter().map(|one| one.0).fold(0.0, f64::max), made.iter().map(|one| one.1).sum())];
        let worst = if self.adds_up() { &added } else { made };
        worst.iter().map(|&(eps, n)| guess_of_reports(k, eps, n)).fold(0.0, f64::max).min(of_loss)
    }

    fn loss_of(&self, made: &[Made]) -> f64 {
        together(made.iter().map(|(eps, n)| eps * n), self.adds_up())
    }

    fn share(&self) -> f64 {
        if self.adds_up() { self.text.attribute.len() as f64 } else { 1.0 }
    }
}

fn guess_of_reports(k: u64, eps: f64, n: f64) -> f64 {
    if n > MOST_REPORTS {
        return 1.0;
    }
    let (h, back) = (1.0 / (1.0 + (-eps).exp()), (-eps).exp());
    let (mut bound, mut chance, mut yes, mut no, mut j) = (1.0_f64, h.powf(n), 0.0, 0.0, n);
    while 2.0 * j >= n {
        let x = (k - 1) as f64 * ((n - 2.0 * j) * eps).exp();
        bound = bound.min(((yes - no) * x + 1.0) / (x + 1.0));
        (yes, no) = (yes + chance, (no + chance) * back * back);
        chance *= j / (n - j + 1.0) * back;
        j -= 1.0;
    }
    bound
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
