//! A program that was built without the feature `page` serves none, and asks none.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc};

use gradvine::{config::ConfigError, run::StatusFile};

use super::{Shared, token::Token};

const WITHOUT: &str = "this program was built without its cargo feature `page`";

/// No page.
pub struct Page(Infallible);

/// No server.
pub(crate) struct Server(Infallible);

impl Page {
    /// No page, unless the node file asks for one.
    ///
    /// # Errors
    /// If the node file asks for one; `place` is `node.status.listen`.
    pub fn open(status: &StatusFile) -> Result<Option<Page>, ConfigError> {
        match &status.listen {
            None => Ok(None),
            Some(text) => {
                Err(ConfigError::new("node.status.listen", format!("\"{text}\""), WITHOUT))
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match self.0 {}
    }
}

impl Server {
    pub(crate) fn start(page: Page, _shared: Arc<Shared>) -> io::Result<Server> {
        match page.0 {}
    }
}

/// Asks no address.
///
/// # Errors
/// Always.
pub(crate) fn ask(address: &str, _token: Option<&Token>) -> Result<String, String> {
    Err(format!("{address}: {WITHOUT}"))
}
