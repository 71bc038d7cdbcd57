//! Recipes: numbers that a device computes from its activity log.

use crate::activity::DAY_MS;
use crate::error::{Error, Result};
use crate::survey::{Attribute, Canonical};
use serde::Deserialize;

const MOST_DAYS: i64 = 28;

/// How to compute an attribute's number. The window has the `days` days that end with the last step of use.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) measure: Measure,
    pub(crate) of: Option<String>,
    days: Option<i64>,
    edges: Option<Vec<f64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    ActiveDays,
    DaysWithout,
    UsesPerDay,
    SecondsPerDay,
    Age,
    Absence,
}

impl Recipe {
    /// What a device reports for a number: with `edges` the index of a value, otherwise the number itself.
    pub(crate) fn place(&self, number: f64) -> f64 {
        self.edges.as_ref().map_or(number, |edges| edges.iter().filter(|&&edge| edge <= number).count() as f64)
    }

    pub(crate) fn window_days(&self) -> i64 {
        self.days.unwrap_or(0)
    }

    /// Checks the rules of a recipe.
    pub(crate) fn check(&self, attribute: &Attribute, survey: &Canonical) -> Result<()> {
        let windowed = !matches!(self.measure, Measure::Age | Measure::Absence);
        let step_days = survey.step_seconds.saturating_mul(1000) / DAY_MS;
        let days =
            survey.step_seconds % (DAY_MS / 1000) == 0 && (1..=MOST_DAYS).contains(&step_days) && survey.start % DAY_MS == 0;
        let window = match self.days {
            Some(window) => windowed && (step_days..=MOST_DAYS).contains(&window),
            None => !windowed,
        };
        let of = match self.of {
            Some(_) => windowed,
            None => !windowed || self.measure == Measure::ActiveDays,
        };
        let edges = match (&self.edges, &attribute.values) {
            (Some(edges), Some(values)) => edges.len() + 1 == values.len() && edges.is_sorted_by(|low, high| low < high),
            (None, None) => attribute.parts.is_none() && attribute.outside.is_some(),
            _ => false,
        };
        if days && window && of && edges && attribute.choices.is_none() && attribute.unlisted.is_none() {
            return Ok(());
        }
        Err(Error::UnsafeSurvey(format!("attribute {:?}: the recipe", attribute.name)))
    }
}
