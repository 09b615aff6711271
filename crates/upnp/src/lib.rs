//! A router of the local network that forwards ports: UPnP, Internet Gateway Device.
//!
//! [`Router::find`] searches for one, [`Router::forward`] asks it for a port, [`Router::release`]
//! gives it back. All calls block, for seconds at most. A port that another machine or program has
//! is never taken from it.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use gradvine_upnp::{Port, Router};
//!
//! let router = Router::find(&|| false)?;
//! let port = Port { number: 4001, udp: false };
//! router.forward(port, port, Duration::from_secs(1800))?;
//! println!("{}:{} leads to {}:{}", router.outside()?, port.number, router.local(), port.number);
//! router.release(port)?;
//! # Ok::<(), gradvine_upnp::RouterError>(())
//! ```
//!
//! UPnP Forum, "WANIPConnection:1 Service Template", 2001; "UPnP Device Architecture 1.0", 2008.
#![forbid(unsafe_code)]

mod http;
mod router;

pub use router::{Port, Router, RouterError};
