// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
)

const (
	maxMessage  = 64 << 20 // the longest reply of the protocol is shorter
	maxFDs      = 16
	requestSize = 64 << 10
)

// readMessage reads one frame: its length, big endian, then JSON.
func readMessage(c *net.UnixConn) (m *message, fds []int, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	var head [4]byte
	if fds, err = readFull(c, head[:], nil); err != nil {
		return nil, fds, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > maxMessage {
		return nil, fds, fmt.Errorf("tracerd: a message of %d bytes", n)
	}
	// Not more memory than has come: the length is the other side's word.
	var body []byte
	for len(body) < int(n) {
		part := make([]byte, min(int(n)-len(body), requestSize))
		if fds, err = readFull(c, part, fds); err != nil {
			return nil, fds, err
		}
		body = append(body, part...)
	}
	var in struct {
		V      int             `json:"v"`
		ID     *int64          `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  *protocolError  `json:"error"`
	}
	if err = json.Unmarshal(body, &in); err != nil {
		return nil, fds, err
	}
	m = &message{V: in.V, ID: in.ID, Method: in.Method, Error: in.Error, raw: in.Result}
	if in.Method != "" {
		m.raw = in.Params
	}
	return m, fds, nil
}

// readFull fills buf; descriptors that come with it are appended to fds.
func readFull(c *net.UnixConn, buf []byte, fds []int) ([]int, error) {
	oob := make([]byte, syscall.CmsgSpace(4*maxFDs))
	for len(buf) > 0 {
		n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
		if oobn > 0 {
			if cmsgs, e := syscall.ParseSocketControlMessage(oob[:oobn]); e == nil {
				for i := range cmsgs {
					if got, e := syscall.ParseUnixRights(&cmsgs[i]); e == nil {
						fds = append(fds, got...)
					}
				}
			}
		}
		if err != nil {
			return fds, err
		}
		if n == 0 {
			return fds, errors.New("tracerd: the daemon has closed the connection")
		}
		if flags&syscall.MSG_CTRUNC != 0 || len(fds) > maxFDs {
			return fds, errors.New("tracerd: too many descriptors")
		}
		buf = buf[n:]
	}
	return fds, nil
}

// writeMessage sends one frame with its descriptors on the first byte.
func writeMessage(c *net.UnixConn, m *message, fds ...int) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	var oob []byte
	if len(fds) > 0 {
		oob = syscall.UnixRights(fds...)
	}
	for len(frame) > 0 {
		n, _, err := c.WriteMsgUnix(frame, oob, nil)
		if err != nil {
			return err
		}
		frame, oob = frame[n:], nil
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = syscall.Close(fd)
	}
}
