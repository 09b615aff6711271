//! Encryption of TCP connections: TLS 1.3 with AES where both processors have instructions for
//! AES, else Noise (ChaCha20-Poly1305).
//!
//! The two ends negotiate: who dials proposes what it would like best, and a node without these
//! instructions offers Noise alone. libp2p's own TLS prefers ChaCha20, and its choice of suites is
//! fixed; so this module makes the settings of TLS, with libp2p's certificates and its check of
//! them: a node proves its PeerId by a self-signed certificate, as libp2p's specification of TLS
//! says.

use std::sync::{Arc, Mutex, PoisonError};

use futures::{
    AsyncRead, AsyncWrite, FutureExt,
    future::{BoxFuture, Either},
    io::BufReader,
};
use futures_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use libp2p::{
    PeerId,
    core::upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade, UpgradeInfo},
    identity::Keypair,
    noise,
    tls::certificate::{self, GenError, ParseError},
};
use litemap::LiteMap;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use super::coalesce::{BUFFER, Coalesced};
use crate::run::Security;

const TLS: &str = "/tls/1.0.0";
const NOISE: &str = "/noise";

/// Whether a node with these settings offers TLS.
pub(crate) fn offers_tls(security: Security) -> bool {
    security == Security::Auto && has_aes()
}

/// Whether this processor computes AES by instructions of its own.
pub fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// The encryption of each neighbour's newest TCP connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ciphers(Arc<Mutex<LiteMap<PeerId, String>>>);

impl Ciphers {
    /// The encryption of this neighbour's newest TCP connection.
    pub(crate) fn of(&self, peer: &PeerId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(peer).cloned()
    }

    fn set(&self, peer: PeerId, cipher: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(peer, cipher);
    }
}

/// Encrypts a connection by the protocol that both ends have agreed on.
#[derive(Clone)]
pub(crate) struct Encryption {
    tls: Option<(Arc<ClientConfig>, Arc<ServerConfig>)>,
    noise: noise::Config,
    ciphers: Ciphers,
}

/// Why a connection cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncryptionError {
    #[error("TLS: a certificate cannot be made: {0}")]
    Certificate(#[from] GenError),
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
    #[error("TLS: {0}")]
    Tls(#[source] std::io::Error),
    #[error("TLS: the other end's certificate is wrong: {0}")]
    Peer(#[from] ParseError),
    #[error("Noise: {0}")]
    Noise(#[from] noise::Error),
}

impl Encryption {
    /// The settings of a node with this key.
    ///
    /// # Errors
    /// If no certificate can be made of the key.
    pub(crate) fn new(
        key: &Keypair,
        security: Security,
        ciphers: Ciphers,
    ) -> Result<Encryption, EncryptionError> {
        let tls = offers_tls(security).then(|| configs(key)).transpose()?;
        Ok(Encryption { tls, noise: noise::Config::new(key)?, ciphers })
    }
}

/// The settings of TLS for the two ends of a connection.
fn configs(key: &Keypair) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), EncryptionError> {
    use aws_lc_rs::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_256_GCM_SHA384,
            TLS13_AES_128_GCM_SHA256,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..aws_lc_rs::default_provider()
    });
    let versions = &[&rustls::version::TLS13];
    let (client, server) =
        (libp2p::tls::make_client_config(key, None)?, libp2p::tls::make_server_config(key)?);
    let mut dialling = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier))
        .with_client_cert_resolver(client.client_auth_cert_resolver);
    dialling.alpn_protocols = client.alpn_protocols;
    let mut listening = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::new(Verifier))
        .with_cert_resolver(server.cert_resolver);
    listening.alpn_protocols = server.alpn_protocols;
    Ok((Arc::new(dialling), Arc::new(listening)))
}

/// rustls reads 4 KiB at a time from its socket: a buffer saves most of the system calls.
type Tls<C> = TlsStream<BufReader<C>>;

type Secured<C> = (PeerId, Coalesced<Either<Tls<C>, noise::Output<C>>>);

impl Encryption {
    fn secured<C>(&self, stream: Tls<C>) -> Result<Secured<C>, EncryptionError>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let (_, connection) = stream.get_ref();
        let [certificate] = connection.peer_certificates().unwrap_or_default() else {
            let error = rustls::Error::NoCertificatesPresented;
            return Err(error.into());
        };
        let peer = certificate::parse(certificate)?.peer_id();
        let suite =
            connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        self.ciphers.set(peer, format!("TLS 1.3, {}", suite.unwrap_or_default()));
        Ok((peer, Coalesced::new(Either::Left(stream))))
    }
}

impl UpgradeInfo for Encryption {
    type Info = &'static str;
    type InfoIter = std::vec::IntoIter<Self::Info>;

    fn protocol_info(&self) -> Self::InfoIter {
        let names = if self.tls.is_some() { vec![TLS, NOISE] } else { vec![NOISE] };
        names.into_iter()
    }
}

impl<C> InboundConnectionUpgrade<C> for Encryption
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Output = Secured<C>;
    type Error = EncryptionError;
    type Future = BoxFuture<'static, Result<Self::Output, Self::Error>>;

    fn upgrade_inbound(self, socket: C, info: Self::Info) -> Self::Future {
        async move {
            match &self.tls {
                Some((_, server)) if info == TLS => {
                    let socket = BufReader::with_capacity(BUFFER, socket);
                    let accepted = TlsAcceptor::from(Arc::clone(server)).accept(socket).await;
                    self.secured(accepted.map_err(EncryptionError::Tls)?.into())
                }
                _ => {
                    let (peer, stream) = self.noise.upgrade_inbound(socket, NOISE).await?;
                    self.ciphers.set(peer, CHACHA.into());
                    Ok((peer, Coalesced::new(Either::Right(stream))))
                }
            }
        }
        .boxed()
    }
}

impl<C> OutboundConnectionUpgrade<C> for Encryption
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Output = Secured<C>;
    type Error = EncryptionError;
    type Future = BoxFuture<'static, Result<Self::Output, Self::Error>>;

    fn upgrade_outbound(self, socket: C, info: Self::Info) -> Self::Future {
        async move {
            match &self.tls {
                Some((client, _)) if info == TLS => {
                    // An unspecified address: the name of a libp2p node is in its certificate.
                    let socket = BufReader::with_capacity(BUFFER, socket);
                    let name = ServerName::from(std::net::IpAddr::from([0, 0, 0, 0]));
                    let connected =
                        TlsConnector::from(Arc::clone(client)).connect(name, socket).await;
                    self.secured(connected.map_err(EncryptionError::Tls)?.into())
                }
                _ => {
                    let (peer, stream) = self.noise.upgrade_outbound(socket, NOISE).await?;
                    self.ciphers.set(peer, CHACHA.into());
                    Ok((peer, Coalesced::new(Either::Right(stream))))
                }
            }
        }
        .boxed()
    }
}

const CHACHA: &str = "Noise, CHACHA20_POLY1305";

/// Checks certificates as libp2p's specification asks: exactly one, self-signed, with the node's
/// key and its signature in an extension.
#[derive(Debug)]
struct Verifier;

fn check(one: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
    if !others.is_empty() {
        return Err(rustls::Error::General("there is more than one certificate".into()));
    }
    certificate::parse(one)?;
    Ok(())
}

/// What the verifiers of both sides have in common: signatures of TLS 1.3 by the keys of libp2p's
/// certificates, those of elliptic curves first.
macro_rules! signatures_of_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("only TLS 1.3 is accepted".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let certificate = certificate::parse(certificate)?;
            certificate.verify_signature(signed.scheme, message, signed.signature())?;
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![
                SignatureScheme::ECDSA_NISTP256_SHA256,
                SignatureScheme::ECDSA_NISTP384_SHA384,
                SignatureScheme::ED25519,
                SignatureScheme::RSA_PSS_SHA256,
                SignatureScheme::RSA_PSS_SHA384,
                SignatureScheme::RSA_PSS_SHA512,
            ]
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        one: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        check(one, others).map(|()| ServerCertVerified::assertion())
    }

    signatures_of_tls13!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        one: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        check(one, others).map(|()| ClientCertVerified::assertion())
    }

    signatures_of_tls13!();
}
