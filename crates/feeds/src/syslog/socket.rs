//! Kernel buffers of a datagram socket: their size, and the number of dropped datagrams.
#![allow(unsafe_code)]

use std::net::UdpSocket;

use socket2::SockRef;

/// Bytes of unread datagrams that the kernel is asked to buffer.
pub(super) const RECEIVE_BYTES: usize = 8 << 20;

/// Requests a receive buffer of [`RECEIVE_BYTES`], or as much as the kernel grants (`net.core.rmem_max`). A process
/// that may administer the network gets all of it.
pub(super) fn grow(socket: &UdpSocket) {
    if !force(socket, RECEIVE_BYTES)
        && let Err(e) = SockRef::from(socket).set_recv_buffer_size(RECEIVE_BYTES)
    {
        tracing::debug!(error = %e, "syslog: the kernel did not grant a larger receive buffer");
    }
}

#[cfg(target_os = "linux")]
fn force(socket: &UdpSocket, bytes: usize) -> bool {
    use std::os::fd::AsRawFd;

    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option takes an int, which the kernel reads only during the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            std::ptr::from_ref(&bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    done == 0
}

#[cfg(not(target_os = "linux"))]
fn force(_: &UdpSocket, _: usize) -> bool {
    false
}

/// Returns the number of datagrams that the kernel has dropped since the socket was made, because they were not read
/// in time. The count wraps around after `u32::MAX`. `None`: this kernel does not tell.
#[cfg(target_os = "linux")]
pub(super) fn dropped(socket: &UdpSocket) -> Option<u32> {
    use std::os::fd::AsRawFd;

    /// The index of `SK_MEMINFO_DROPS` among the figures of `SO_MEMINFO`.
    const DROPS: usize = 8;
    let mut figures = [0u32; DROPS + 1];
    let mut bytes = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of `figures`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            figures.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    (done == 0 && bytes as usize == size_of_val(&figures)).then(|| figures[DROPS])
}

#[cfg(not(target_os = "linux"))]
pub(super) fn dropped(_: &UdpSocket) -> Option<u32> {
    None
}
