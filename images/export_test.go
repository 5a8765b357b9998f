package images

// Watch has fn see every step that makes something durable, before it is done; its error fails the step.
func (d *Disk) Watch(fn func(step, path string) error) { d.home.durable.Before = fn }
