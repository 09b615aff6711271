//! What a site keeps on its disk: its node file and key, and the run with its history.
//!
//! | file | holds |
//! |---|---|
//! | `node.toml` | the node file, which the site's user may change |
//! | `node.key` | the key, which never leaves the site |
//! | `run.json` | the run, what others have told, and who asks to join |
//!
//! Commands and the program that runs change `run.json` one at a time, under a lock, and replace
//! it as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use gradvine::{
    config::ConfigError,
    data::write_atomically,
    experiment::Experiment,
    net::{Keypair, LONGEST_DOCUMENT, PeerId, Proxy, caller, identity},
    run::NodeFile,
};
use serde::{Deserialize, Serialize};

use crate::{
    document::{Invitation, Member, Run, Version, check_history},
    notes::{Announcement, Notes, Proposal, Refusal, StageEnd},
    sign::{About, digest, sign},
};

/// The names of a site's files.
const NODE: &str = "node.toml";
const BOOK: &str = "run.json";
const LOCK: &str = "run.lock";

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Eight digits that two people compare by voice: those of a site's key, for this ticket.
pub fn fingerprint(run: &str, ticket: &str, peer: &str) -> String {
    let all = digest(format!("{run}\0{ticket}\0{peer}").as_bytes()).to_uppercase();
    format!("{}-{}", &all[..4], &all[4..8])
}

/// A site that asks to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Who asks.
    pub member: Member,
    /// The PeerId of its ticket.
    pub ticket: String,
}

/// The run as a site knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Book {
    /// The name of this site.
    pub site: String,
    /// The PeerId of its node: a member of its name with another one is not this site.
    pub peer: String,
    /// All versions of the run, the first one first. There is at least one.
    pub history: Vec<Version>,
    /// What sites have told.
    #[serde(default)]
    pub notes: Notes,
    /// The sites that ask this one to join.
    #[serde(default)]
    pub requests: Vec<Request>,
    /// The tickets of this site that are used, and by which PeerId.
    #[serde(default)]
    pub used: BTreeMap<String, String>,
    /// The tickets of this site that need no approval.
    #[serde(default)]
    pub automatic: BTreeSet<String>,
    /// The addresses that its user has given; none if it finds them itself.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The digests of the versions that this site has declined.
    #[serde(default)]
    pub declined: BTreeSet<String>,
    /// The stage whose files are in the node's run directory, and the rounds of those before it.
    #[serde(default)]
    pub training: Option<(u64, u64)>,
    /// Why the history of another site contradicts this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
}

impl Book {
    /// The book of a site with this PeerId, which begins with this history.
    pub fn new(site: impl Into<String>, peer: String, history: Vec<Version>) -> Book {
        Book {
            site: site.into(),
            peer,
            history,
            notes: Notes::default(),
            requests: Vec::new(),
            used: BTreeMap::new(),
            automatic: BTreeSet::new(),
            addresses: Vec::new(),
            declined: BTreeSet::new(),
            training: None,
            conflict: None,
        }
    }

    /// The newest version of the run.
    pub fn run(&self) -> &Run {
        &self.history.last().expect("a history has a version").run
    }

    /// This site, while it is a member.
    pub fn me(&self) -> Option<&Member> {
        self.run().member(&self.site).filter(|member| member.peer == self.peer)
    }

    /// Whether this site founded the run, and alone decides before it begins.
    pub fn decides(&self) -> bool {
        !self.run().started && self.run().founder == self.site
    }

    /// The addresses of a member: as it has announced them, or as it joined with.
    pub fn addresses_of<'a>(&'a self, member: &'a Member) -> &'a [String] {
        let announced = self.notes.announcements.iter().find(|one| one.site == member.name);
        announced.map_or(&member.addresses, |one| &one.addresses)
    }

    /// The invitation with this ticket, used or not.
    pub(crate) fn invitation(&self, ticket: &str) -> Option<&Invitation> {
        self.history.iter().rev().find_map(|version| version.run.invitation(ticket))
    }

    /// Who may ask this site: its members, those that were removed (to hear that they were), and
    /// the bearers of its tickets.
    pub fn callers(&self) -> BTreeSet<PeerId> {
        let run = self.run();
        let members = self.history.iter().flat_map(|version| &version.run.members);
        let members = members.map(|member| &member.caller);
        let ours = |one: &&Invitation| one.by == self.site;
        let invited = run.invitations.iter().filter(ours).map(|one| &one.ticket);
        let is_open = |ticket: &&String| {
            self.invitation(ticket).is_some_and(|invitation| invitation.expires > now())
        };
        let all = members.chain(invited).chain(self.used.keys().filter(is_open));
        all.filter_map(|peer| peer.parse().ok()).collect()
    }

    /// Continues the history with versions of another site. Whether there is a new one.
    ///
    /// # Errors
    /// If a version is wrong, or contradicts one that is known: then the book notes it.
    pub fn extend(&mut self, versions: Vec<Version>) -> Result<bool, String> {
        let mut changes = false;
        for version in versions {
            let (number, newest) = (version.run.number, self.run().number);
            if number == newest + 1 {
                version.check(Some(self.run()))?;
                self.history.push(version);
                changes = true;
                continue;
            }
            let known = self.history.iter().find(|known| known.run.number == number);
            if let Some(known) = known.filter(|known| known.run != version.run) {
                // Anybody may invent a version; only signatures contradict each other.
                let at = (number as usize).checked_sub(2).and_then(|at| self.history.get(at));
                version.check(at.map(|version| &version.run))?;
                let both =
                    known.signatures.keys().filter(|name| version.signatures.contains_key(*name));
                let both = both.cloned().collect::<Vec<_>>().join(", ");
                let why = format!("{both} signed two versions of the run with the number {number}");
                self.conflict = Some(why.clone());
                return Err(why);
            }
        }
        if changes {
            let run = self.run().clone();
            self.notes.prune(&run);
        }
        Ok(changes)
    }

    /// Takes over what is new and signed in the notes of another site.
    pub fn learn(&mut self, notes: Notes) {
        self.notes.merge(notes, &self.history);
    }

    /// The history up to the version that removed this caller, if it was a member.
    pub(crate) fn until_removed(&self, caller: &str) -> Option<&[Version]> {
        let was = self.history.iter().rposition(|version| version.run.caller(caller).is_some())?;
        self.history.get(..was + 2)
    }

    /// The number of the version with which the present stage of training begins, and that version.
    pub fn stage(&self) -> Option<&Run> {
        newest_stage(&self.history)
    }

    /// The version with which the stage before this one began.
    pub fn stage_before(&self, stage: u64) -> Option<&Run> {
        let end = self.history.iter().position(|version| version.run.number == stage)?;
        newest_stage(&self.history[..end])
    }
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_lowercase() || c == '_'
}

/// Checks that these are sections or keys that the run has.
pub(crate) fn check_names(names: &[String], run: &Run) -> Result<(), ConfigError> {
    for name in names.iter().filter(|name| *name != "topology" && *name != "sites") {
        let parts: Vec<&str> = name.split('.').collect();
        let is_word = |part: &&str| !part.is_empty() && part.chars().all(is_of_key);
        // A text is a wrong value of most keys: only an unknown one matters here.
        let (set, unknown) = match parts.as_slice() {
            [section] => (format!("{section}.x=\"\""), "no such section"),
            _ => (format!("{name}=\"\""), "unknown field"),
        };
        let tried = Experiment::parse(&run.experiment, &[set]);
        let why = tried.err().map_or(String::new(), |error| error.to_string());
        let is_plain = parts.len() <= 2 && parts.iter().all(is_word);
        if !is_plain || why.contains(unknown) || why.contains("no such section") {
            let problem = "the run has no such section or key: expected some, such as \"data\" or \
                           \"optimizer.step\", or \"topology\" or \"sites\"";
            return Err(ConfigError::new("forbid", name, problem));
        }
    }
    Ok(())
}

/// The version with which the newest stage of this history begins.
fn newest_stage(history: &[Version]) -> Option<&Run> {
    let mut versions = history.iter().rev().map(|version| &version.run);
    let newest = versions.next().filter(|run| run.started)?;
    Some(versions.take_while(|run| run.trains_as(newest)).last().unwrap_or(newest))
}

/// The newest model of a site.
#[derive(Clone, Debug)]
pub struct Newest {
    /// The rounds of all stages so far.
    pub rounds: u64,
    /// Whether it is the mean of all sites, or this site's own.
    pub mean: bool,
    /// Its digest.
    pub digest: String,
    /// Settings that it needs in a next stage.
    pub settings: Vec<String>,
}

/// A site's folder.
pub struct Site {
    /// The folder that holds its files.
    pub folder: PathBuf,
    /// The key of its node.
    pub key: Keypair,
    /// The key with which it asks other sites.
    pub caller: Keypair,
    /// Through which proxy it asks them.
    pub proxy: Option<Proxy>,
    /// What its node file lets nobody change: sections and keys of the experiment, `topology` and
    /// `sites`.
    pub forbid: Vec<String>,
}

impl Site {
    /// The site in this folder.
    ///
    /// # Errors
    /// If it has no node file or no run, or a file is wrong.
    pub fn open(folder: &Path) -> Result<Site, ConfigError> {
        let file = NodeFile::load(&folder.join(NODE))?;
        let mut site = Site::with(folder, identity::load(&file.key)?, file.proxy.as_deref())?;
        let book = site.book()?;
        check_history(&book.history).map_err(|why| site.wrong(why))?;
        check_names(&file.forbid, book.run())
            .map_err(|error| error.within(site.node().display()))?;
        site.forbid = file.forbid;
        Ok(site)
    }

    /// A site in this folder with this key, behind this proxy.
    ///
    /// # Errors
    /// If the key is not of Ed25519, or the proxy is no URL of one.
    pub fn with(folder: &Path, key: Keypair, proxy: Option<&str>) -> Result<Site, ConfigError> {
        let proxy = proxy.map(|text| Proxy::parse("node.proxy", text)).transpose()?;
        Ok(Site { folder: folder.into(), caller: caller(&key)?, key, proxy, forbid: Vec::new() })
    }

    /// Its node file.
    pub fn node(&self) -> PathBuf {
        self.folder.join(NODE)
    }

    /// The PeerId of its node.
    pub fn peer(&self) -> String {
        self.key.public().to_peer_id().to_string()
    }

    /// Whether the folder has a run.
    pub fn has_run(folder: &Path) -> bool {
        folder.join(BOOK).exists()
    }

    fn wrong(&self, why: impl Into<String>) -> ConfigError {
        ConfigError::at("run", why).within(self.folder.join(BOOK).display())
    }

    /// This site as a member of this name, at these addresses.
    pub fn member(&self, name: &str, addresses: Vec<String>) -> Member {
        let caller = self.caller.public().to_peer_id().to_string();
        Member { name: name.into(), peer: self.peer(), caller, addresses }
    }

    /// Reads the book.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn book(&self) -> Result<Book, ConfigError> {
        let path = self.folder.join(BOOK);
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => self.wrong(
                "there is no run here: `gradvine init` makes one, `gradvine join TICKET` joins one",
            ),
            _ => self.wrong(format!("cannot be read: {error}")),
        })?;
        let book: Book = serde_json::from_slice(&bytes)
            .map_err(|error| self.wrong(format!("it is damaged: {error}")))?;
        match book.history.is_empty() {
            true => Err(self.wrong("it is damaged: it has no version of the run")),
            false => Ok(book),
        }
    }

    /// Writes a first book.
    ///
    /// # Errors
    /// If there is one, or it cannot be written.
    pub fn begin(&self, book: &Book) -> Result<(), ConfigError> {
        let _lock = self.lock()?;
        if Site::has_run(&self.folder) {
            return Err(self.wrong("there is a run in this folder: name another folder (--dir)"));
        }
        self.write(book)
    }

    /// Changes the book, under its lock. It is written if `change` succeeds and changes it.
    ///
    /// # Errors
    /// Those of `change`, or if the book cannot be read or written.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        let _lock = self.lock()?;
        let mut book = self.book()?;
        let before = book.clone();
        let result = change(&mut book)?;
        if book != before {
            self.write(&book)?;
        }
        Ok(result)
    }

    fn lock(&self) -> Result<File, ConfigError> {
        let path = self.folder.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.and_then(|file| file.lock().map(|()| file));
        file.map_err(|error| {
            ConfigError::at("run", format!("cannot be locked: {error}")).within(path.display())
        })
    }

    fn write(&self, book: &Book) -> Result<(), ConfigError> {
        let text =
            serde_json::to_string_pretty(book).map_err(|error| self.wrong(error.to_string()));
        write_atomically(&self.folder.join(BOOK), &[text?.as_bytes(), b"\n"])
            .map_err(|error| self.wrong(format!("cannot be written: {error}")))
    }

    /// This version with the signature of this site.
    pub fn sign(&self, site: &str, run: Run) -> Version {
        let signature = sign(&self.key, About::Accepts, run.digest().as_bytes());
        Version { run, signatures: BTreeMap::from([(site.to_string(), signature)]) }
    }

    /// The signature with which this site asks to join with a ticket.
    pub fn sign_request(&self, run: &str, ticket: &str, member: &Member) -> String {
        sign(&self.key, About::Joins, &words_of_request(run, ticket, member))
    }

    /// Makes the next version, or proposes it where it needs the consent of others. Whether it
    /// counts at once.
    ///
    /// # Errors
    /// If it may not follow, or this site has accepted another proposal that is open.
    pub fn propose(&self, book: &mut Book, run: Run) -> Result<bool, ConfigError> {
        let refuse = |why: String| ConfigError::at("run", why);
        run.follows(Some(book.run())).map_err(refuse)?;
        if book.me().is_none() {
            return Err(refuse("this site is no member of the run any more".into()));
        }
        let bytes = serde_json::to_vec(&book.history).map_or(0, |bytes| bytes.len());
        if bytes > LONGEST_DOCUMENT / 2 {
            return Err(refuse(format!(
                "its history has {bytes} bytes, which is the most that sites exchange: make a new \
                 run, with --from"
            )));
        }
        let site = book.site.clone();
        let version = self.sign(&site, run);
        if book.decides() {
            book.extend(vec![version]).map_err(refuse)?;
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
        let Version { run, signatures: accepts } = version;
        book.notes.proposals.retain(|one| one.by != site);
        book.notes.proposals.push(Proposal { run, by: site, accepts, declines: BTreeMap::new() });
        self.adopt(book).map_err(refuse)
    }

    /// Answers a proposal.
    ///
    /// # Errors
    /// If this site may not answer so.
    pub fn answer(
        &self,
        book: &mut Book,
        digest: &str,
        refusal: Option<String>,
    ) -> Result<(), ConfigError> {
        let refuse = |why: String| ConfigError::at("run", why);
        let site = book.site.clone();
        let other = accepted(book).filter(|open| open.run.digest() != digest);
        let other = other.map(|open| (open.by.clone(), open.run.change.clone()));
        let one = book.notes.proposals.iter_mut().find(|one| one.run.digest() == digest);
        let one = one.ok_or_else(|| refuse("there is no such proposal any more".into()))?;
        if let Some(reason) = refusal {
            if one.accepts.contains_key(&site) {
                return Err(refuse("this site has accepted this proposal already".into()));
            }
            let signature = sign(&self.key, About::Declines, &one.words_of_refusal(&reason));
            one.declines.insert(site, Refusal { reason, signature });
            return Ok(());
        }
        if one.declines.contains_key(&site) {
            return Err(refuse("this site has declined this proposal already".into()));
        }
        if let Some((by, change)) = other {
            return Err(refuse(format!(
                "this site has accepted a proposal of {by}, \"{change}\": at most one is accepted \
                 at a time"
            )));
        }
        let signature = sign(&self.key, About::Accepts, digest.as_bytes());
        one.accepts.insert(site, signature);
        self.adopt(book).map(drop).map_err(refuse)
    }

    /// Adopts the proposal that has enough consent, if there is one.
    ///
    /// # Errors
    /// If it does not follow after all.
    pub fn adopt(&self, book: &mut Book) -> Result<bool, String> {
        let current = book.run().clone();
        match book.notes.adopted(&current) {
            Some(version) => book.extend(vec![version]),
            None => Ok(false),
        }
    }

    /// Says where this site is reached from now on.
    pub fn announce(&self, book: &mut Book, addresses: Vec<String>) {
        let known = book.me().map(|me| book.addresses_of(me).to_vec());
        if known.as_ref() == Some(&addresses) {
            return;
        }
        let millis = SystemTime::now().duration_since(UNIX_EPOCH);
        let one = Announcement {
            run: book.run().id.clone(),
            site: book.site.clone(),
            number: millis.map_or(0, |since| since.as_millis() as u64),
            addresses,
            signature: String::new(),
        };
        book.learn(Notes { announcements: vec![one.signed(&self.key)], ..Notes::default() });
    }

    /// Says how a stage has ended here: with this model, after so many rounds of all stages. With
    /// none the newest model of an earlier stage stands.
    pub fn ended(&self, book: &mut Book, stage: u64, newest: Option<Newest>) {
        let (run, site) = (book.run().id.clone(), book.site.clone());
        let earlier = book.notes.ends.iter().find(|end| end.site == site).cloned();
        let none = || StageEnd {
            run,
            site,
            stage,
            rounds: 0,
            model: None,
            mean: false,
            digest: String::new(),
            settings: Vec::new(),
            signature: String::new(),
        };
        let end = StageEnd { stage, ..earlier.unwrap_or_else(none) };
        let end = match newest {
            Some(Newest { rounds, mean, digest, settings }) => {
                StageEnd { rounds, model: Some(stage), mean, digest, settings, ..end }
            }
            None => end,
        };
        book.learn(Notes { ends: vec![end.signed(&self.key)], ..Notes::default() });
    }

    /// Does what follows from the book without a user: admits sites that need no approval, accepts
    /// the admission of sites whose invitation was accepted and the wish of a site to leave, adopts
    /// proposals, declines what the node file forbids, leaves a run whose change was refused here,
    /// and begins the run once all sites are there.
    ///
    /// # Errors
    /// If the run cannot be continued so.
    pub fn tend(&self, book: &mut Book) -> Result<(), ConfigError> {
        for request in book.requests.clone() {
            if book.automatic.contains(&request.ticket) {
                self.admit(book, &request)?;
            }
        }
        let current = book.run().clone();
        self.decline_forbidden(book)?;
        let agreed = |one: &&Proposal| {
            one.run.only_admits(&current) || one.run.only_removes(&current, &one.by)
        };
        let agreed: Vec<String> = (book.notes.proposals.iter().filter(agreed))
            .filter(|one| !one.accepts.contains_key(&book.site))
            .map(|one| one.run.digest())
            .collect();
        for digest in agreed {
            // Not while another proposal is open.
            let _ = self.answer(book, &digest, None);
        }
        self.adopt(book).map_err(|why| self.wrong(why))?;
        self.leave_if_declined(book)?;
        let run = book.run();
        if book.decides() && run.members.len() == run.sites {
            let next = run.next(now(), "training begins".into(), None);
            let next = Run { started: true, invitations: Vec::new(), ..next };
            self.propose(book, next)?;
        }
        Ok(())
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
            self.answer(book, &digest, Some(why))?;
            book.declined.insert(digest);
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
        let run = book.run();
        let is_due =
            self.refused(book).is_some() && run.members.len() > 2 && accepted(book).is_none();
        if is_due {
            let change = format!("{} leaves, as it has declined a change", book.site);
            let mut next = run.next(now(), change, None);
            next.members.retain(|member| member.name != book.site);
            self.propose(book, next)?;
        }
        Ok(())
    }

    /// Admits a site that asks to join.
    ///
    /// # Errors
    /// If it may not be admitted.
    pub fn admit(&self, book: &mut Book, request: &Request) -> Result<(), ConfigError> {
        let run = book.run();
        let name = &request.member.name;
        let mut next = run.next(now(), format!("{name} joins"), None);
        next.admit(request.member.clone());
        self.propose(book, next)?;
        book.requests.retain(|one| one.ticket != request.ticket);
        Ok(())
    }
}

/// The proposal for the next version that this site has accepted, and that may still be adopted.
fn accepted(book: &Book) -> Option<&Proposal> {
    let current = book.run();
    let open = |one: &&Proposal| one.run.number == current.number + 1 && !one.is_rejected(current);
    let mut open = book.notes.proposals.iter().filter(open);
    open.find(|one| one.accepts.contains_key(&book.site))
}

/// What a site that asks to join signs.
pub(crate) fn words_of_request(run: &str, ticket: &str, member: &Member) -> Vec<u8> {
    serde_json::to_vec(&(run, ticket, member)).expect("texts serialise")
}
