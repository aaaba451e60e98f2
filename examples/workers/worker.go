// Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- ./worker (go build worker.go)
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

type job struct {
	Ticket  string
	Payload struct{ OrderID *int } // nil: there is none
}

func main() {
	fd, _ := strconv.Atoi(os.Getenv("DELAYQ_ANSWER_FD"))
	answers := os.NewFile(uintptr(fd), "answers")
	lines := bufio.NewReader(os.Stdin) // a Scanner takes no line over 64 KiB
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var j job
		if json.Unmarshal(line, &j) != nil || j.Payload.OrderID == nil {
			fmt.Fprintln(answers, "dead", j.Ticket, "no order id")
			continue
		}
		id := *j.Payload.OrderID
		err = closeOrder(os.Getenv("ORDERS"), id)
		switch {
		case err == nil:
			fmt.Fprintln(answers, "ok", j.Ticket)
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintln(answers, "dead", j.Ticket, "no order", id)
		default:
			fmt.Fprintln(answers, "retry", j.Ticket, "-", strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
}

func closeOrder(dir string, id int) error {
	state, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(id)))
	if err != nil || strings.TrimSpace(string(state)) != "open" {
		return err
	}
	closed, err := os.OpenFile(filepath.Join(dir, "closed"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer closed.Close()
	_, err = fmt.Fprintln(closed, id)
	return err
}
