//! etcd under load: gRPC over HTTP/2. The callers' requests are streams of a few or of many
//! connections.
//!
//! ```text
//!   POST /etcdserverpb.KV/Put    0, length (4 bytes), PutRequest { key = 1, value = 2 }   ──▶
//!                                ◀──   0, length, PutResponse                 trailers: grpc-status: 0
//! ```

use super::{ANSWER_TIMEOUT, Limits, Measured, Meter};
use crate::error::{BenchError, Result};
use crate::workload::{Sequence, Step};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt};
use h2::client::SendRequest;
use std::cell::RefCell;
use std::io;
use std::net::{SocketAddrV4, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Protocol buffer tags of fields 1 and 2, both bytes.
const KEY_TAG: u8 = 1 << 3 | 2;
const VALUE_TAG: u8 = 2 << 3 | 2;

/// Connections to a member of etcd.
pub(crate) struct EtcdLoad {
    runtime: Runtime,
    connections: Vec<SendRequest<Bytes>>,
    callers: usize,
    uri: String,
}

struct Shared<'a> {
    meter: Meter<'a>,
    sequence: Sequence,
}

impl EtcdLoad {
    /// Connects from the calling thread's network namespace.
    pub(crate) fn connect(server: SocketAddrV4, connections: usize, callers: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let open = |_| {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            runtime.block_on(async {
                let stream = tokio::net::TcpStream::from_std(stream)?;
                let (requests, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
                // If it ends, requests fail.
                tokio::spawn(async { connection.await.ok() });
                Ok(requests)
            })
        };
        let connections = (0..connections).map(open).collect::<io::Result<_>>()?;
        Ok(Self { runtime, connections, callers, uri: format!("http://{server}/etcdserverpb.KV/Put") })
    }

    /// Runs the puts of `sequence`, each caller one at a time.
    pub(crate) fn run(&mut self, sequence: Sequence, limits: Limits<'_>) -> Result<Measured> {
        let shared = RefCell::new(Shared { meter: Meter::start(limits), sequence });
        let Self { runtime, connections, callers, uri } = self;
        let call = |caller: usize| {
            let requests = connections[caller % connections.len()].clone();
            call(requests, uri, &shared)
        };
        runtime.block_on(async {
            let mut callers: FuturesUnordered<_> = (0..*callers).map(call).collect();
            let all = async {
                while let Some(ended) = callers.next().await {
                    ended?;
                }
                Ok(())
            };
            let in_time = tokio::time::timeout(limits.duration + ANSWER_TIMEOUT, all).await;
            in_time.unwrap_or_else(|_| Err(failed(format!("no answer in {ANSWER_TIMEOUT:?}"))))
        })?;
        shared.into_inner().meter.finish()
    }
}

fn failed(why: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("etcd: {why}"))
}

/// Puts one value after the other, until the time is up.
async fn call(mut requests: SendRequest<Bytes>, uri: &str, shared: &RefCell<Shared<'_>>) -> Result<()> {
    let mut is_going_on = true;
    while is_going_on {
        let Some(step) = shared.borrow_mut().sequence.next() else { break };
        requests = requests.ready().await.map_err(failed)?;
        put(&mut requests, uri, &step).await?;
        is_going_on = shared.borrow_mut().meter.count(1);
    }
    Ok(())
}

async fn put(requests: &mut SendRequest<Bytes>, uri: &str, step: &Step) -> Result<()> {
    let request = http::Request::post(uri)
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(failed)?;
    let (response, mut body) = requests.send_request(request, false).map_err(failed)?;
    body.send_data(encode(step), true).map_err(failed)?;
    let mut answer = response.await.map_err(failed)?.into_body();
    while let Some(part) = answer.data().await {
        let bytes = part.map_err(failed)?.len();
        answer.flow_control().release_capacity(bytes).map_err(failed)?;
    }
    let trailers = answer.trailers().await.map_err(failed)?.unwrap_or_default();
    match trailers.get("grpc-status").map(http::HeaderValue::as_bytes) {
        Some(b"0") => Ok(()),
        _ => Err(failed(format!("a put failed: {trailers:?}"))),
    }
}

/// A `PutRequest` as a message of gRPC, uncompressed.
fn encode(step: &Step) -> Bytes {
    let (key, value) = (step.key(), step.value());
    let fields = [(KEY_TAG, key.as_slice()), (VALUE_TAG, value.as_slice())];
    let length: usize = fields.iter().map(|(_, bytes)| 2 + bytes.len()).sum();
    let mut message = BytesMut::with_capacity(5 + length);
    message.put_u8(0);
    message.put_u32(length as u32);
    for (tag, bytes) in fields {
        debug_assert!(bytes.len() < 128, "a length of one byte");
        message.put_slice(&[tag, bytes.len() as u8]);
        message.put_slice(bytes);
    }
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::limits;
    use crate::workload::{KEY_BYTES, VALUE_BYTES, Work};
    use http::{HeaderMap, HeaderValue};
    use nicekv_runtime::Stop;
    use std::net::{Ipv4Addr, TcpListener};

    /// Runs puts over two connections against a server that ends each call with this status.
    fn run(status: &'static str) -> Result<Measured> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        std::thread::scope(|scope| {
            scope.spawn(move || serve(&listener, status));
            // Dropped before the server is joined, which ends when its connections do.
            let mut load = EtcdLoad::connect(address, 2, 8).unwrap();
            load.run(Sequence::new(Work::Put, 1), limits(&Stop::new()))
        })
    }

    fn serve(listener: &TcpListener, status: &'static str) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let accept = |_| {
            let stream = listener.accept().unwrap().0;
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let streams: Vec<_> = (0..2).map(accept).collect();
        runtime.block_on(async {
            let connections: FuturesUnordered<_> =
                streams.into_iter().map(|stream| answer_all(stream, status)).collect();
            connections.collect::<Vec<()>>().await;
        });
    }

    async fn answer_all(stream: TcpStream, status: &'static str) {
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((mut request, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                let mut bytes = 0;
                while let Some(Ok(part)) = request.body_mut().data().await {
                    bytes += part.len();
                }
                assert_eq!(bytes, 5 + 2 + KEY_BYTES + 2 + VALUE_BYTES);
                let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(&[0, 0, 0, 0, 0]), false).unwrap();
                let trailers = HeaderMap::from_iter([(
                    "grpc-status".parse().unwrap(),
                    HeaderValue::from_static(status),
                )]);
                body.send_trailers(trailers).unwrap();
            });
        }
    }

    #[test]
    fn puts_that_succeed_are_counted_and_others_fail_the_run() {
        assert!(run("0").unwrap().operations > 0);
        let refused = run("14").unwrap_err().to_string();
        assert!(refused.contains("etcd: a put failed") && refused.contains("14"), "{refused}");
    }

    #[test]
    fn a_put_is_encoded_as_a_protocol_buffer() {
        let step = Sequence::new(Work::Put, 1).next().unwrap();
        let bytes = encode(&step);
        assert_eq!(bytes[..7], [0, 0, 0, 0, 84, 0x0a, 16]);
        assert_eq!(
            (&bytes[7..23], &bytes[23..25], &bytes[25..]),
            (&step.key()[..], &[0x12, 64][..], &step.value()[..])
        );
    }
}
