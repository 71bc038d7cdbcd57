//! The part of a device that asks the person.

use crate::consent::preview::{Left, Preview};
use crate::consent::words::question;
use crate::consent::{Answered, Consent, ConsentMode, switched_off};
use crate::device::{Device, Silence};
use crate::error::{Error, Result};
use crate::store::state::State;
use crate::survey::value::Value;
use std::sync::PoisonError;

const MOST_JOURNAL: usize = 200;

impl Device {
    /// Returns the text by which the program asks for consent, as plain text in several lines.
    pub fn question(&self) -> String {
        question(&self.survey, &self.levels)
    }

    /// Returns the person's consent to the survey: unknown if that to an attribute is unknown, else given if one is given.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn consent(&self) -> Result<Consent> {
        let states = self.states()?;
        let found = [Consent::Unknown, Consent::Given].into_iter().find(|one| states.contains(one));
        Ok(found.unwrap_or(Consent::Withdrawn))
    }

    /// Returns the person's consent to an attribute.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn consent_to(&self, attribute: &str) -> Result<Consent> {
        let a = self.survey.place(attribute)?;
        self.states().map(|states| states[a])
    }

    /// Returns the attributes about which the program has to ask the person; none while devices are switched off.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn to_ask(&self) -> Result<Vec<String>> {
        if self.off() {
            return Ok(Vec::new());
        }
        let unknown = self.survey.attributes().iter().zip(self.states()?).filter(|(_, state)| *state == Consent::Unknown);
        Ok(unknown.map(|(attribute, _)| attribute.name.clone()).collect())
    }

    /// Keeps the person's consent to some attributes, or to all for an empty list. Enrolls the device permanently.
    ///
    /// While devices are switched off, it does nothing. After a withdrawal the device enrolls again, with a fresh budget.
    ///
    /// # Errors
    /// `WalletFull` if the survey does not fit the wallet: nothing is kept. Otherwise as for [`Device::report`].
    pub fn give_consent(&self, attributes: &[&str]) -> Result<()> {
        let places = self.places(attributes)?;
        if self.off() {
            return Ok(());
        }
        self.store.transaction(|state| {
            if let Some(wrong) = self.another(state.as_ref()) {
                return Err(wrong);
            }
            let state = self.made(state)?;
            if state.enrolled(&self.survey.pin).is_none() {
                self.enter(state)?;
            }
            self.keep_answer(state, &places, &self.terms());
            Ok(())
        })?;
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).retain(|a| !places.contains(a));
        Ok(())
    }

    /// Withdraws the consent to some attributes, or to all for an empty list; before any consent, keeps that the person refused.
    ///
    /// Nothing more is sent: the device drops the waiting reports. It keeps nothing but the withdrawal, and sends no event. If
    /// consent to other attributes remains, it also keeps the choices of its enrolment and which steps it reported.
    ///
    /// # Errors
    /// As for [`Device::report`]. The store may keep the consent then, but this object sends nothing more.
    pub fn withdraw_consent(&self, attributes: &[&str]) -> Result<()> {
        let places = self.places(attributes)?;
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).extend(&places);
        self.store.transaction(|state| {
            if let Some(wrong) = self.another(state.as_ref()) {
                return Err(wrong);
            }
            let state = self.made(state)?;
            let all = self.keep_answer(state, &places, &Answered::withdrawn());
            if all {
                self.erase(state);
            } else if let Some(enrolled) = state.enrolled(&self.survey.pin) {
                let names: Vec<&str> = places.iter().map(|&a| self.survey.attributes()[a].name.as_str()).collect();
                enrolled.journal.retain(|left| !names.contains(&left.attribute.as_str()));
                places.iter().for_each(|&a| enrolled.attributes[a].withdraw());
            }
            Ok(())
        })?;
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).retain(|a| !places.contains(a));
        Ok(())
    }

    /// Returns what [`Device::answer`] would make and send now, and what each part can reveal. Keeps and sends nothing.
    ///
    /// It also shows the reports of a person who has not consented yet. A report that is not made yet is an example.
    ///
    /// # Errors
    /// As for [`Device::answer`]; `WalletFull` before the enrolment, if the survey does not fit the wallet.
    pub fn preview(&self, values: &[(&str, Value)], step: Option<u64>) -> Result<Vec<Preview<'_>>> {
        let (indices, given) = (self.indices(values)?, self.step(step)?);
        let at = given.unwrap_or(0);
        self.store.transaction(|kept| {
            if let Some(wrong) = self.another(kept.as_ref()) {
                return Err(wrong);
            }
            let (mut shown, muted) = (kept.clone(), self.muted(kept.as_ref()));
            let state = self.made(&mut shown)?;
            let fresh = state.enrolled(&self.survey.pin).is_none();
            if fresh {
                self.enter(state)?;
                let enrolled = state.enrolled(&self.survey.pin).expect("a device that enrolled");
                for (a, one) in enrolled.attributes.iter_mut().enumerate() {
                    (one.silent, one.phase) = (false, at % self.every(a, one));
                }
            }
            let enrolled = state.enrolled(&self.survey.pin).expect("an enrolment");
            let mut found = Vec::new();
            for (a, index) in indices {
                let answers = &mut enrolled.attributes[a];
                let own = given.map_or(Some(Silence::SurveyNotBegun), |step| self.silent(a, answers, step));
                let settled = answers.kept.get(&at).filter(|sealed| sealed.key.is_none()).map(|_| Silence::AlreadyAnswered);
                let (silence, example) = (muted[a].or(own).or(settled), !answers.kept.contains_key(&at));
                let shown = own.is_none() && (muted[a].is_none() || !example || !answers.is_over(at));
                let envelope = if shown { Some(self.report_of(a, answers, index, at, step.is_some())?) } else { None };
                let attribute = self.survey.attributes()[a].name.clone();
                found.push(Preview { survey: &self.survey, attribute, step: at, silence, example, envelope });
            }
            Ok(found)
        })
    }

    /// Writes a waiting report into the journal. A program that sends by itself calls this before each attempt, and sends
    /// nothing if the result is false: consent was withdrawn, devices are switched off, or the report does not wait any more.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn leaves(&self, key: &str) -> Result<bool> {
        self.left(key, false)
    }

    pub(crate) fn left(&self, key: &str, local: bool) -> Result<bool> {
        self.store.transaction(|state| {
            let muted = self.muted(state.as_ref());
            if muted.iter().all(Option::is_some) {
                return Ok(false);
            }
            let enrolled = self.enrolled(state)?;
            let mut found = None;
            for (a, answers) in enrolled.attributes.iter().enumerate().filter(|(a, _)| muted[*a].is_none()) {
                let waits = answers.kept.iter().find(|(_, sealed)| sealed.key.as_deref() == Some(key));
                found = found.or(waits.map(|(&step, sealed)| (a, step, sealed.envelope.clone())));
            }
            let Some((a, step, envelope)) = found else { return Ok(false) };
            let sent_before = enrolled.journal.iter().any(|left| left.key == key && !left.local);
            enrolled.journal.retain(|left| left.key != key);
            let (attribute, at_ms) = (self.survey.attributes()[a].name.clone(), (self.clock)());
            enrolled.journal.push(Left { at_ms, attribute, step, envelope, local: local && !sent_before, key: key.into() });
            let surplus = enrolled.journal.len().saturating_sub(MOST_JOURNAL);
            enrolled.journal.drain(..surplus);
            Ok(true)
        })
    }

    /// Returns the last reports that left this device or may have left it, the latest last.
    ///
    /// # Errors
    /// As for [`Device::report`].
    pub fn journal(&self) -> Result<Vec<Left>> {
        self.store.transaction(|state| {
            if let Some(wrong) = self.another(state.as_ref()) {
                return Err(wrong);
            }
            let enrolled = state.as_mut().and_then(|state| state.enrolled(&self.survey.pin));
            Ok(enrolled.map(|enrolled| enrolled.journal.clone()).unwrap_or_default())
        })
    }

    // ---- for the other parts of the device

    /// The attributes' reasons of silence without consent.
    pub(crate) fn muted(&self, state: Option<&State>) -> Vec<Option<Silence>> {
        if self.off() {
            return vec![Some(Silence::SwitchedOff); self.survey.attributes().len()];
        }
        let reason = |consent| match consent {
            Consent::Unknown => Some(Silence::ConsentUnknown),
            Consent::Withdrawn => Some(Silence::ConsentWithdrawn),
            Consent::Given => None,
        };
        self.consents(state).into_iter().map(reason).collect()
    }

    fn states(&self) -> Result<Vec<Consent>> {
        self.store.transaction(|state| match self.another(state.as_ref()) {
            Some(wrong) => Err(wrong),
            None => Ok(self.consents(state.as_ref())),
        })
    }

    fn consents(&self, state: Option<&State>) -> Vec<Consent> {
        let (kept, now) = (state.and_then(|state| state.consents.get(&self.survey.pin)), self.terms());
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let consent = |(a, name): (usize, &str)| {
            let answer = kept.and_then(|kept| kept.get(name));
            if stopped.contains(&a) || answer.is_some_and(Answered::is_withdrawn) {
                return Consent::Withdrawn;
            }
            let given = self.mode != ConsentMode::Asked || answer.is_some_and(|answer| answer.covers(&now));
            if given { Consent::Given } else { Consent::Unknown }
        };
        self.survey.attributes().iter().map(|one| one.name.as_str()).enumerate().map(consent).collect()
    }

    fn off(&self) -> bool {
        self.mode != ConsentMode::Simulated && (self.starts_off || switched_off().is_some())
    }

    fn terms(&self) -> Answered {
        Answered::given(&self.survey.words, self.survey.text.step_seconds as u64)
    }

    fn places(&self, attributes: &[&str]) -> Result<Vec<usize>> {
        if attributes.is_empty() {
            return Ok((0..self.survey.attributes().len()).collect());
        }
        attributes.iter().map(|name| self.survey.place(name)).collect()
    }

    /// The state, which a device outside a wallet makes at its first use.
    fn made<'a>(&self, state: &'a mut Option<State>) -> Result<&'a mut State> {
        if self.in_wallet && state.is_none() {
            return Err(Error::StoreCleared(format!("{}: the wallet had been made", self.store.place())));
        }
        Ok(state.get_or_insert_with(|| State::new(None)))
    }

    /// Keeps the answer for some attributes. Returns true if the person has then withdrawn all attributes.
    fn keep_answer(&self, state: &mut State, places: &[usize], answer: &Answered) -> bool {
        let answers = state.consents.entry(self.survey.pin.clone()).or_default();
        for &a in places {
            answers.insert(self.survey.attributes()[a].name.clone(), answer.clone());
        }
        answers.len() == self.survey.attributes().len() && answers.values().all(Answered::is_withdrawn)
    }
}
