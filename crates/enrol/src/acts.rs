//! What a site does with its book: it proposes and answers, says where it is and how stages have
//! ended, and does by itself what needs no user.

use std::collections::BTreeMap;

use gradvine::{
    config::ConfigError,
    net::{Keypair, LONGEST_DOCUMENT},
};

use crate::{
    book::{Book, Request, Retry, now},
    document::{Admission, Invitation, Member, Run, Version},
    ends::{Constants, LONGEST_CONSTANTS, StageEnd},
    follows::{MOST_GIVEN_UP, words_of_admission},
    notes::{AHEAD, Announcement, Choice, News},
    proposal::Proposal,
    sign::{About, Accept, Declined, Refusal, digest, sign},
    site::Site,
    text::check_text,
};

/// The greatest exponent of the pause before a site proposes again what others have declined.
const LONGEST_PAUSE: u32 = 6;

/// The newest model of a site.
#[derive(Clone, Debug)]
pub struct Newest {
    /// The rounds of all stages so far.
    pub rounds: u64,
    /// Whether it is the mean of all sites, or this site's own.
    pub mean: bool,
    /// Its digest.
    pub digest: String,
    /// What it needs in a next stage.
    pub constants: Constants,
}

fn refuse(why: impl Into<String>) -> ConfigError {
    ConfigError::at("run", why.into())
}

/// Letters and digits that two people compare by voice. The site that joins computes them from its
/// ticket, the PeerId that the connection has proved, and its own keys; the inviter from its own
/// PeerId and from who asks. Whoever answers in the place of the other leads to others.
///
/// Three groups of four letters of base 32: 60 bits.
pub fn fingerprint(run: &str, ticket: &str, inviter: &str, member: &Member) -> String {
    let words = (run, ticket, inviter, &member.name, &member.peer, &member.caller);
    let words = serde_json::to_vec(&words).expect("texts serialise");
    let bytes = data_encoding::HEXLOWER.decode(digest(&words).as_bytes()).expect("a digest");
    let letters = data_encoding::BASE32_NOPAD.encode(&bytes);
    format!("{}-{}-{}", &letters[..4], &letters[4..8], &letters[8..12])
}

/// What a site that asks to join signs with the key of its ticket: the inviter puts it into the
/// version that admits the site.
pub(crate) fn sign_admission(
    key: &Keypair,
    about: About,
    (run, invitation, member): (&str, &Invitation, &Member),
) -> String {
    sign(key, about, &words_of_admission(run, invitation, member))
}

/// The proposal for the next version that this site has accepted, and that may still be adopted.
fn accepted(book: &Book) -> Option<&Proposal> {
    let current = book.run();
    let open = |one: &&Proposal| one.run.number == current.number + 1 && !one.is_rejected(current);
    let mut open = book.notes.proposals.iter().filter(open);
    open.find(|one| one.accepts.contains_key(&book.site))
}

/// The proposals for the next version that this site has accepted, once they were declined.
fn given_up(book: &Book) -> impl Iterator<Item = &Proposal> {
    book.notes.proposals.iter().filter(|one| one.accepts.contains_key(&book.site))
}

/// Whether so many were declined that this site accepts no more without its user: the user can.
fn leaves_it_to_its_user(book: &Book) -> bool {
    2 * given_up(book).count() > MOST_GIVEN_UP
}

/// The version that this site has chosen of those with this number.
fn own_choice(book: &Book, number: u64) -> Option<&Choice> {
    book.notes.choices.iter().find(|one| one.site == book.site && one.number == number)
}

impl Site {
    /// Makes the next version, or proposes it where it needs the consent of others. Whether it
    /// counts at once.
    ///
    /// # Errors
    /// If it may not follow, or this site has accepted another proposal that is open.
    pub fn propose(&self, book: &mut Book, run: Run) -> Result<bool, ConfigError> {
        run.follows(Some(book.run())).map_err(refuse)?;
        if book.me().is_none() {
            return Err(refuse("this site is no member of the run any more"));
        }
        if let Some(conflict) = &book.conflict {
            return Err(refuse(format!("{conflict}: `gradvine settle` comes first")));
        }
        let bytes = serde_json::to_vec(&book.history).map_or(0, |bytes| bytes.len());
        if bytes > LONGEST_DOCUMENT / 2 {
            return Err(refuse(format!(
                "its history has {bytes} bytes, which is the most that sites exchange: make a new \
                 run, with --from"
            )));
        }
        let site = book.site.clone();
        if book.decides() {
            book.extend(vec![self.sign(&site, run)]).map_err(refuse)?;
            return Ok(true);
        }
        if !book.run().started {
            let founder = &book.run().founder;
            return Err(refuse(format!("before it begins, only {founder} changes the run")));
        }
        if let Some(open) = accepted(book) {
            return Err(refuse(format!(
                "this site has accepted a proposal of {}, \"{}\": it must be adopted or declined \
                 first",
                open.by, open.run.change
            )));
        }
        if book.notes.proposals.iter().any(|one| one.run == run) {
            return Err(refuse("the same was declined a moment ago"));
        }
        let accepts = [(site.clone(), self.accept(book, &run.digest())?)].into();
        book.notes.proposals.push(Proposal { run, by: site, accepts, declines: BTreeMap::new() });
        self.adopt(book).map_err(refuse)
    }

    /// That this site accepts this version, in place of those that were declined.
    fn accept(&self, book: &Book, version: &str) -> Result<Accept, ConfigError> {
        let before = given_up(book).map(|one| (one.run.digest(), one.declines.clone()));
        let before: Vec<Declined> = (before.filter(|(digest, _)| digest != version))
            .map(|(version, declines)| Declined { version, declines })
            .collect();
        match before.len() > MOST_GIVEN_UP {
            true => Err(refuse(format!(
                "this site has accepted {} proposals for one version, and all were declined: at \
                 most {MOST_GIVEN_UP} may be",
                before.len()
            ))),
            false => Ok(Accept::new(&self.key, version, before)),
        }
    }

    /// Accepts a proposal, or declines it with a reason.
    ///
    /// # Errors
    /// If this site may not answer so.
    pub fn answer(
        &self,
        book: &mut Book,
        digest: &str,
        refusal: Option<String>,
    ) -> Result<(), ConfigError> {
        let site = book.site.clone();
        let other = accepted(book).filter(|open| open.run.digest() != digest);
        let other = other.map(|open| (open.by.clone(), open.run.change.clone()));
        let current = book.run().clone();
        let one = book.notes.proposals.iter_mut().find(|one| one.run.digest() == digest);
        let one = one.ok_or_else(|| refuse("there is no such proposal any more"))?;
        if let Some(reason) = refusal {
            check_text(&reason).map_err(|why| ConfigError::at("--reason", why))?;
            if one.accepts.contains_key(&site) {
                return Err(refuse("this site has accepted this proposal already"));
            }
            one.declines.insert(site, Refusal::new(&self.key, digest, reason));
            return Ok(());
        }
        if one.declines.contains_key(&site) {
            return Err(refuse("this site has declined this proposal already"));
        }
        if let Some((by, change)) = other {
            return Err(refuse(format!(
                "this site has accepted a proposal of {by}, \"{change}\": at most one is accepted \
                 at a time"
            )));
        }
        // The date of a version is its author's word.
        let late = |one: &Proposal| {
            let used = one.run.admissions.iter().map(|one| current.invitation(&one.ticket));
            used.flatten()
                .find(|invitation| invitation.expires <= now())
                .map(|one| one.site.clone())
        };
        if let Some(name) = late(one) {
            return Err(refuse(format!("the ticket of {name} has expired")));
        }
        let accept = self.accept(book, digest)?;
        let one = book.notes.proposals.iter_mut().find(|one| one.run.digest() == digest);
        one.expect("it is known").accepts.insert(site, accept);
        self.adopt(book).map(drop).map_err(refuse)
    }

    /// Declines a proposal in the name of this site's user: the site leaves if the others adopt it.
    ///
    /// # Errors
    /// If this site has accepted it.
    pub fn decline(
        &self,
        book: &mut Book,
        digest: &str,
        reason: String,
    ) -> Result<(), ConfigError> {
        self.answer(book, digest, Some(reason))?;
        book.declined.insert(digest.into());
        Ok(())
    }

    /// Adopts the proposal that has enough consent, if there is one.
    ///
    /// # Errors
    /// If it does not follow after all.
    pub fn adopt(&self, book: &mut Book) -> Result<bool, String> {
        match book.notes.adopted(book.run()) {
            Some(version) if book.conflict.is_none() => book.extend(vec![version]),
            _ => Ok(false),
        }
    }

    /// Chooses the version with this digest, of two that have one number.
    ///
    /// # Errors
    /// If there are no two, or none of them has this digest.
    pub fn settle(&self, book: &mut Book, digest: &str) -> Result<(), ConfigError> {
        let conflict = book.conflict.as_ref();
        let conflict = conflict.ok_or_else(|| refuse("no version contradicts another one"))?;
        let own = book.history.iter().find(|one| one.run.number == conflict.number);
        let two = own.into_iter().chain(conflict.rival.first()).map(|one| one.run.digest());
        let chosen = two.into_iter().filter(|one| one.starts_with(digest)).collect::<Vec<_>>();
        let [digest] = chosen.as_slice() else {
            return Err(ConfigError::new("DIGEST", digest, "is that of none of the two versions"));
        };
        let (number, digest) = (conflict.number, digest.clone());
        self.choose(book, number, digest);
        Ok(())
    }

    fn choose(&self, book: &mut Book, number: u64, digest: String) {
        let (run, site, signature) = (book.run().id.clone(), book.site.clone(), String::new());
        let earlier = own_choice(book, number).map_or(0, |one| one.time + 1);
        let time = now().max(earlier);
        let choice = Choice { run, site, number, digest, time, signature }.signed(&self.key);
        book.learn(News { choices: vec![choice], ..News::default() });
    }

    /// Says which of two versions this site has chosen by signing a later one: others may have
    /// another later one.
    fn choose_as_signed(&self, book: &mut Book) {
        let open = book.conflict.iter().map(|one| one.number);
        let numbers: Vec<u64> = book.settled.keys().copied().chain(open).collect();
        for number in numbers {
            let chosen = book.chosen_by_signing(number);
            if let Some(digest) = chosen.filter(|_| own_choice(book, number).is_none()) {
                self.choose(book, number, digest);
            }
        }
    }

    /// Says where this site is reached from now on.
    pub fn announce(&self, book: &mut Book, addresses: Vec<String>) {
        let known = book.me().map(|me| book.addresses_of(me).to_vec());
        let of_own = |one: &&Announcement| one.site == book.site;
        let earlier = book.notes.announcements.iter().find(of_own);
        let is_known = earlier.is_none_or(|one| one.is_timely(now()));
        if known.as_ref() == Some(&addresses) && is_known {
            return;
        }
        // Later than the last one, also if the clock was ahead then.
        let next = earlier.filter(|_| is_known).map_or(0, |one| one.number + 1);
        let one = Announcement {
            run: book.run().id.clone(),
            site: book.site.clone(),
            number: next.max(now() * 1000).min((now() + AHEAD) * 1000),
            addresses,
            signature: String::new(),
        };
        book.learn(News { announcements: vec![one.signed(&self.key)], ..News::default() });
    }

    /// Says how the stage that this version begins has ended here: with this model, after so many
    /// rounds of all stages. With none the newest model of an earlier stage stands.
    ///
    /// # Errors
    /// If no site would take it over, such as constants that are too long.
    pub fn ended(
        &self,
        book: &mut Book,
        stage: &Run,
        newest: Option<Newest>,
    ) -> Result<(), ConfigError> {
        if book.me().is_none() {
            // Nobody waits for one that has left the run.
            return Ok(());
        }
        let (run, site) = (stage.id.clone(), book.site.clone());
        let earlier = book.notes.ends.iter().find(|end| end.site == site).cloned();
        let none = || StageEnd {
            run,
            site,
            stage: 0,
            begins: String::new(),
            rounds: 0,
            model: None,
            mean: false,
            digest: String::new(),
            constants: String::new(),
            signature: String::new(),
        };
        let (number, begins) = (stage.number, stage.digest());
        let end = StageEnd { stage: number, begins, ..earlier.unwrap_or_else(none) };
        let end = match newest {
            Some(Newest { rounds, mean, digest, constants }) => {
                let constants = constants.to_text()?;
                StageEnd { rounds, model: Some(number), mean, digest, constants, ..end }
            }
            None => end,
        };
        let end = end.signed(&self.key);
        if !end.is_valid(&book.history) {
            let (rounds, bytes) = (end.rounds, end.constants.len());
            return Err(refuse(format!(
                "no site takes over how stage {number} ended here, with {rounds} rounds and \
                 {bytes} bytes of scales and fills: expected at most the rounds of the run, and \
                 {LONGEST_CONSTANTS} bytes"
            )));
        }
        book.learn(News { ends: vec![end], ..News::default() });
        Ok(())
    }

    /// The signatures with which this site asks to join: of its own key, and of its ticket's.
    pub fn sign_request(
        &self,
        (run, ticket): (&str, &Keypair),
        invitation: &Invitation,
        member: &Member,
    ) -> (String, String) {
        let words = (run, invitation, member);
        let own = sign_admission(&self.key, About::Joins, words);
        (own, sign_admission(ticket, About::Joins, words))
    }

    /// Does what follows from the book without a user: admits sites that may join, accepts the
    /// admission of sites whose invitation was accepted and the wish of a site to leave, adopts
    /// proposals, declines what the node file forbids, leaves a run whose change was refused here,
    /// says that a stage has ended that was replaced before it began, and which of two versions it
    /// has chosen by signing a later one, and begins the run once all sites are there. Returns what
    /// goes wrong: nothing of it keeps the site from hearing others.
    pub fn tend(&self, book: &mut Book) -> Vec<String> {
        book.close_tickets();
        let mut problems = Vec::new();
        let mut note = |done: Result<(), ConfigError>| {
            problems.extend(done.err().map(|error| error.to_string()));
        };
        if book.me().is_some() && book.conflict.is_none() {
            note(self.decline_forbidden(book));
            self.answer_by_itself(book);
            note(self.adopt(book).map(drop).map_err(|why| self.wrong(why)));
            note(self.leave_if_declined(book));
            note(self.admit_next(book));
            note(self.begin_if_all_are_there(book));
        }
        self.choose_as_signed(book);
        note(self.pass_over(book));
        problems
    }

    /// Answers what needs no user. Two such proposals do not hold each other up: a site that has
    /// accepted another one declines, and their authors try again.
    fn answer_by_itself(&self, book: &mut Book) {
        let current = book.run().clone();
        let is_due = |one: &&Proposal| {
            one.is_automatic(&current)
                && !one.accepts.contains_key(&book.site)
                && !one.declines.contains_key(&book.site)
        };
        let due: Vec<(String, String)> = (book.notes.proposals.iter().filter(is_due))
            .map(|one| (one.by.clone(), one.run.digest()))
            .collect();
        for (by, digest) in due {
            let refusal = match accepted(book).is_some() {
                true => Some("this site has accepted another proposal"),
                false if book.notes.is_persistent(&by) => Some("its author has proposed too often"),
                false if leaves_it_to_its_user(book) => Some("too many others were declined"),
                false => None,
            };
            // One that may not be accepted stays open.
            let _ = self.answer(book, &digest, refusal.map(String::from));
        }
    }

    /// Declines what the node file forbids.
    fn decline_forbidden(&self, book: &mut Book) -> Result<(), ConfigError> {
        let current = book.run().clone();
        let forbidden = |one: &Proposal| {
            let is_open =
                !one.accepts.contains_key(&book.site) && !one.declines.contains_key(&book.site);
            let why = self.forbids(&current, &one.run).filter(|_| is_open && current.started)?;
            Some((one.run.digest(), why))
        };
        let all: Vec<(String, String)> =
            book.notes.proposals.iter().filter_map(forbidden).collect();
        for (digest, why) in all {
            self.decline(book, &digest, why)?;
        }
        Ok(())
    }

    /// Why the node file does not let `next` follow, if it does not.
    pub fn forbids(&self, before: &Run, next: &Run) -> Option<String> {
        if self.forbid.is_empty() {
            return None;
        }
        let changed = next.changed_from(before);
        let is_in = |key: &str, name: &str| {
            key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let name = self.forbid.iter().find(|name| changed.iter().any(|key| is_in(key, name)))?;
        Some(format!("its node file forbids changes of {name}"))
    }

    /// The change of the run that this site has declined, or that its node file forbids, if the
    /// others have adopted one and this site was not asked or has not accepted: it leaves.
    pub fn refused<'a>(&self, book: &'a Book) -> Option<&'a Run> {
        book.me()?;
        let pairs = book.history.iter().zip(book.history.iter().skip(1));
        let refuses = |(before, next): &(&Version, &Version)| {
            let accepted = next.signatures.contains_key(&book.site);
            // Not what an earlier key of this name was asked.
            let member = before.run.member(&book.site).filter(|one| one.peer == book.peer);
            let was = before.run.started && member.is_some();
            book.declined.contains(&next.run.digest())
                || was && !accepted && self.forbids(&before.run, &next.run).is_some()
        };
        pairs.filter(refuses).map(|(_, next)| &next.run).next_back()
    }

    /// Asks the others to go on without this site if they have adopted what it refuses.
    fn leave_if_declined(&self, book: &mut Book) -> Result<(), ConfigError> {
        if self.refused(book).is_none() || book.run().members.len() <= 2 {
            return Ok(());
        }
        let change = format!("{} leaves, as it has declined a change", book.site);
        let mut next = book.run().next(now(), change, None);
        next.remove(&book.site)?;
        self.propose_by_itself(book, next)
    }

    /// Proposes what needs no user, unless this site has accepted another proposal. After others
    /// have declined it, it is tried again after a pause that differs from site to site and grows.
    fn propose_by_itself(&self, book: &mut Book, mut next: Run) -> Result<(), ConfigError> {
        if accepted(book).is_some() || leaves_it_to_its_user(book) {
            return Ok(());
        }
        if book.retry.number != next.number {
            book.retry = Retry { number: next.number, ..Retry::default() };
        }
        if book.retry.pause > 0 {
            book.retry.pause -= 1;
            return Ok(());
        }
        let tries = book.retry.tries + 1;
        if tries > 1 {
            // Another version than the one that was declined.
            next.change += &format!(", attempt {tries}");
        }
        let drawn = digest(format!("{} {} {tries}", book.peer, next.number).as_bytes());
        let drawn = u32::from_str_radix(&drawn[..6], 16).unwrap_or_default();
        let pause = 1 + drawn % (4 << tries.min(LONGEST_PAUSE));
        book.retry = Retry { number: next.number, tries, pause };
        self.propose(book, next).map(drop)
    }

    /// Admits the next site that may join.
    fn admit_next(&self, book: &mut Book) -> Result<(), ConfigError> {
        let may = |one: &&Request| one.approved || book.automatic.contains(&one.ticket);
        let Some(request) = book.requests.iter().find(may).cloned() else { return Ok(()) };
        let run = book.run();
        let Some(invitation) = run.invitation(&request.ticket) else { return Ok(()) };
        let (name, words) = (&request.member.name, (run.id.as_str(), invitation, &request.member));
        let mut next = run.next(now(), format!("{name} joins"), None);
        next.admissions.push(Admission {
            site: name.clone(),
            ticket: request.ticket.clone(),
            bearer: request.bearer.clone(),
            approval: sign_admission(&self.key, About::Admits, words),
        });
        next.admit(request.member.clone());
        let done = next.follows(Some(book.run())).map_err(refuse);
        if done.is_err() {
            // Such as a key that another member has.
            book.requests.retain(|one| one.ticket != request.ticket);
            return done;
        }
        self.propose_by_itself(book, next)
    }

    /// Lets a site join that asks to.
    ///
    /// # Errors
    /// If it may not be admitted.
    pub fn approve(&self, book: &mut Book, ticket: &str) -> Result<(), ConfigError> {
        let request = book.requests.iter_mut().find(|one| one.ticket == ticket);
        request.ok_or_else(|| refuse("no site asks to join with this ticket"))?.approved = true;
        book.retry = Retry::default();
        self.admit_next(book)
    }

    /// The founder begins training.
    fn begin_if_all_are_there(&self, book: &mut Book) -> Result<(), ConfigError> {
        let run = book.run();
        if !book.decides() || run.members.len() != run.sites {
            return Ok(());
        }
        let next = run.next(now(), "training begins".into(), None);
        let next = Run { started: true, invitations: Vec::new(), ..next };
        self.propose(book, next).map(drop)
    }

    /// Says that the stage before the present one has ended here, if it was replaced before this
    /// site's node began it: without rounds.
    fn pass_over(&self, book: &mut Book) -> Result<(), ConfigError> {
        let before = book.stage().and_then(|now| book.stage_before(now.number)).cloned();
        let Some(before) = before else { return Ok(()) };
        let took_part = before.member(&book.site).is_some_and(|one| one.peer == book.peer);
        let is_said = book.notes.end_of(&before, &book.site).is_some();
        let is_begun = book.training.iter().any(|one| book.begun(one) == Some(&before));
        match took_part && !is_said && !is_begun && book.unsaid().is_none() {
            true => self.ended(book, &before, None),
            false => Ok(()),
        }
    }
}
