import static java.nio.file.StandardOpenOption.CREATE;
import static java.nio.file.StandardOpenOption.READ;
import static java.nio.file.StandardOpenOption.TRUNCATE_EXISTING;
import static java.nio.file.StandardOpenOption.WRITE;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

class Careful {
    static void save(String settings) throws IOException {
        Path fresh = Path.of("cfg.json.new");
        try (FileChannel file = FileChannel.open(fresh, CREATE, TRUNCATE_EXISTING, WRITE)) {
            for (ByteBuffer rest = ByteBuffer.wrap(settings.getBytes()); rest.hasRemaining();) file.write(rest);
            file.force(true);
        }
        Files.move(fresh, Path.of("cfg.json"), StandardCopyOption.ATOMIC_MOVE);
        try (FileChannel folder = FileChannel.open(Path.of("."), READ)) {
            folder.force(true);
        }
    }

    public static void main(String[] arguments) throws IOException {
        save("{\"colour\": \"blue\"}");
        System.out.println("saved");
    }
}
