//! When a TCP connection without a sign of life is over.
//!
//! Keep-alive (RFC 9293, 3.8.4) asks on a quiet connection, the user timeout (RFC 5482) ends one
//! whose bytes are not acknowledged: each is blind where the other sees. QUIC has both of its own.

use rustix::net::sockopt;
use tokio::net::TcpStream;

use crate::wire::limits::{LINK_PROBE, LINK_SILENCE};

/// Probes that may stay without an answer.
const PROBES: u32 = 3;

/// Sets both on a new connection.
pub(super) fn limited(stream: TcpStream) -> TcpStream {
    // A connection that was reset before it was used takes no options, and needs none.
    if let Err(error) = limit(&stream) {
        tracing::debug!(%error, "a connection without a limit on its silence");
    }
    stream
}

fn limit(stream: &TcpStream) -> rustix::io::Result<()> {
    let between = (LINK_SILENCE - LINK_PROBE) / PROBES;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, LINK_PROBE)?;
    sockopt::set_tcp_keepintvl(stream, between)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, u32::try_from(LINK_SILENCE.as_millis()).unwrap_or(0))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_takes_the_limits() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        limit(&stream).unwrap();
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(LINK_PROBE));
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&stream), Ok(10_000));
    }
}
