package main

import (
	"fmt"
	"os"
)

func save(settings string) error {
	return os.WriteFile("cfg.json", []byte(settings), 0o644)
}

func main() {
	if save(`{"colour": "blue"}`) == nil {
		fmt.Println("saved")
	}
}
