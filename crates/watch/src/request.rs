//! What a node serves at its page, read by another program.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::token::Token;

/// How long an address has for its answer, and the longest one.
const ANSWER: Duration = Duration::from_secs(10);
const LONGEST: usize = 64 << 20;

/// The text of `/status.json` at an address.
///
/// # Errors
/// Why the address has no such text.
pub(crate) fn ask(address: &str, token: Option<&Token>) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let asked = runtime.block_on(async { timeout(ANSWER, get(address, token)).await });
    match asked {
        Ok(answer) => answer.map_err(|problem| format!("{address}: {problem}")),
        Err(_) => Err(format!("{address} did not answer within {} s", ANSWER.as_secs())),
    }
}

async fn get(address: &str, token: Option<&Token>) -> Result<String, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| {
        format!("{error}; does a node serve its page there (`listen` in [status] of its file)?")
    })?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let mut request = Request::get("/status.json").header(header::HOST, address);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, token.bearer());
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let code = answer.status();
    let body = Limited::new(answer.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    match code {
        StatusCode::OK => Ok(text),
        StatusCode::UNAUTHORIZED => {
            Err("it asks for a token: give the file with it as --token FILE".into())
        }
        code => Err(format!("it answered {code}: {}", text.trim())),
    }
}
