package main

import (
	"fmt"
	"os"
)

func save(settings string) error {
	file, err := os.Create("cfg.json.new")
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err = file.WriteString(settings); err != nil {
		return err
	}
	if err = file.Sync(); err != nil {
		return err
	}
	if err = os.Rename("cfg.json.new", "cfg.json"); err != nil {
		return err
	}
	folder, err := os.Open(".")
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

func main() {
	if save(`{"colour": "blue"}`) == nil {
		fmt.Println("saved")
	}
}
