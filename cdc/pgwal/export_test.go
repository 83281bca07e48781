package pgwal

// LowerRoom makes the backlogs of later streams hold that many batches, until the
// function that it returns is called.
func LowerRoom(batches int) (undo func()) {
	before := backlogRoom
	backlogRoom = batches
	return func() { backlogRoom = before }
}
