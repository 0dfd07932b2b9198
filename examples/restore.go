// Restores one picture by a server: go run examples/restore.go PHOTO RESULT [OPTION=VALUE]...
// The server is that of RESTORED_URL, and RESTORED_TOKEN is sent if it is set.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// form has the picture and the options as the fields of a form.
func form(photo string, options []string) (*bytes.Buffer, string, error) {
	body := &bytes.Buffer{}
	parts := multipart.NewWriter(body)
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		parts.WriteField(name, value)
	}
	picture, err := os.ReadFile(photo)
	if err != nil {
		return nil, "", err
	}
	part, _ := parts.CreateFormFile("image", filepath.Base(photo))
	part.Write(picture)
	return body, parts.FormDataContentType(), parts.Close()
}

func restore(photo, result string, options []string) error {
	url := os.Getenv("RESTORED_URL")
	if url == "" {
		url = "http://127.0.0.1:8080"
	}
	body, kind, err := form(photo, options)
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		request, err := http.NewRequest("POST", url+"/v1/restore", bytes.NewReader(body.Bytes()))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", kind)
		if token := os.Getenv("RESTORED_TOKEN"); token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		bytes, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			return err
		}
		if answer.StatusCode == 200 {
			return os.WriteFile(result, bytes, 0o666)
		}
		if (answer.StatusCode == 429 || answer.StatusCode == 503) && attempt < 4 { // busy: it says when to come again
			seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
			time.Sleep(time.Duration(seconds) * time.Second)
			continue
		}
		var problem struct{ Detail string }
		if json.Unmarshal(bytes, &problem) != nil || problem.Detail == "" {
			problem.Detail = "the server answered " + answer.Status
		}
		return fmt.Errorf("%s", problem.Detail)
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: restore PHOTO RESULT [OPTION=VALUE]...")
		os.Exit(2)
	}
	for _, option := range os.Args[3:] {
		if !strings.Contains(option, "=") {
			fmt.Fprintln(os.Stderr, option+": an option is written OPTION=VALUE")
			os.Exit(2)
		}
	}
	if err := restore(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
